"""What XLA gets of a dump is the program that it would get of the function, instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.interpreters import mlir
from jaxlib import _jax
from jaxlib.mlir import ir

import hlo_parser
from jax_stitch.frontend.hlo_files.broadcasts import expanding
from jax_stitch.frontend.hlo_files.translate import stablehlo_of
from tests.fusion.forced import hlo_of

X = jnp.ones((3, 4, 5))


def _shared(x: Any) -> tuple[Any, Any]:
    mean = x.mean(1, keepdims=True)
    return x - mean, x * jnp.broadcast_to(mean, (3, 6, 5))[:, :4]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "one": lambda x: x - x.mean(1, keepdims=True),
    "several": lambda x: x / x.sum((0, 2), keepdims=True),
    "all": lambda x: x - x.max(keepdims=True),
    "used twice": _shared,
    "in a loop": lambda x: jax.lax.scan(lambda c, _: (c - c.mean(-1, keepdims=True), c.sum()), x, None, length=3),
    "beside a whole one": lambda x: jnp.broadcast_to(x[:, :1], x.shape) + x[:1, :, :1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_way_through_stablehlo_changes_nothing(name: str) -> None:
    """Catches broadcasts along dimensions of one element that XLA makes two operations of, and not three."""
    dumped = hlo_parser.parse(hlo_of(FUNCTIONS[name], X))
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo_of(dumped, "here"))
        text = module.operation.get_asm()
    computation = _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)
    again = hlo_parser.parse(computation.get_hlo_module().to_string())
    assert list(hlo_parser.diff(dumped, again)) == []


@pytest.mark.parametrize(
    ("shape", "squeezed", "wide", "dims", "expected"),
    [
        ([8, 1, 8], [8, 8], [8, 4, 8], [0, 2], [0, 1, 2]),
        ([1, 1], [], [3, 4], [], [0, 1]),
        ([1, 5], [5], [2, 3, 5], [2], [0, 2]),
        ([1, 1, 5], [1, 5], [3, 1, 5], [1, 2], [0, 1, 2]),
        ([8, 1], [8], [8, 1], [0], None),  # which XLA would not have split
        ([8, 1], [8], [4, 8], [1], None),  # the dimension of one element comes last, and there is none behind
        ([2, 4], [8], [3, 8], [1], None),  # a reshape of another kind
        ([8], [8], [8, 2], [0], None),  # nothing is left out
    ],
)
def test_dimensions_of_one_element_become_those_between(
    shape: list[int], squeezed: list[int], wide: list[int], dims: list[int], expected: list[int] | None
) -> None:
    assert expanding(shape, squeezed, wide, dims) == expected
