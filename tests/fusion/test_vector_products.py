"""Batched products of a matrix and a vector, whose matrix XLA:CPU would transpose: sums where the matrix lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.fusion.rewrites.vector_products import vector_products
from tests.fusion import forced

ZEN3 = devices.get("zen3")


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def products(function: Callable[..., Any], *arguments: Any) -> int:
    """Return how many products are left of a function, as XLA optimizes it."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return sum(n.op == "dot" for n in vector_products(graph.build(hlo_parser.parse(text), {}), ZEN3).nodes)


@pytest.mark.parametrize(
    ("equation", "vector", "matrix"),
    [
        ("bqhd,bkhd->bhqk", (2, 1, 4, 16), (2, 300, 4, 16)),
        ("bhqk,bkhd->bqhd", (2, 4, 1, 300), (2, 300, 4, 16)),
        ("bhd,bkhd->bkh", (2, 4, 16), (2, 300, 4, 16)),
        ("hb,kbhd->bkdh", (4, 3), (50, 3, 4, 40)),
        ("bxy,xkby->bk", (3, 6, 7), (6, 200, 3, 7)),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_values_stay(equation: str, vector: tuple[int, ...], matrix: tuple[int, ...], swapped: bool) -> None:
    """Catches dimensions that meet wrongly, and a matrix on the right of which the left one's are read."""
    if swapped:
        operands, _, result = equation.partition("->")
        a, _, b = operands.partition(",")
        equation, vector, matrix = f"{b},{a}->{result}", matrix, vector
    arguments = [numbers(*vector) / 8, numbers(*matrix) / 8]

    def function(a: Any, b: Any) -> Any:
        return jnp.tanh(jnp.einsum(equation, a, b)) * 2

    made = forced.stitched(jax.jit(function).lower(*arguments).compile().as_text(), ZEN3)
    (got,) = forced.run(made, arguments)
    np.testing.assert_allclose(got, np.tanh(np.einsum(equation, *arguments)) * 2, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype", "left"),
    [
        ("bhd,bkhd->bhk", [(2, 4, 16), (2, 300, 4, 16)], "float32", 0),
        ("bhd,bkhd->bhk", [(2, 4, 16), (2, 300, 4, 16)], "float64", 0),
        ("bhd,bkhd->bhk", [(2, 4, 16), (2, 30, 4, 16)], "float32", 1),
        ("bqhd,bkhd->bhqk", [(2, 2, 4, 16), (2, 300, 4, 16)], "float32", 1),
        ("bhd,bhkd->bhk", [(2, 4, 16), (2, 4, 300, 16)], "float32", 1),
    ],
    ids=["transposed", "doubles", "small", "two queries", "as it lies"],
)
def test_only_what_xla_transposes_for_a_vector(equation: str, shapes: Any, dtype: str, left: int) -> None:
    """Catches products that are expanded though a library computes them faster."""
    with jax.enable_x64(dtype == "float64"):
        arguments = [numbers(*s, dtype=dtype) for s in shapes]
        assert products(lambda a, b: jnp.einsum(equation, a, b), *arguments) == left
