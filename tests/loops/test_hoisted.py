"""Sums taken out of loops whose terms are products of narrower numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.loops.rewrites import hoist
from jax_stitch.loops.rewrites.hoist import with_simple_products, without_sums
from tests.fusion import forced

STEPS, BATCH, ROWS, COLUMNS = 7, 5, 9, 12


def summed(x: Any, y: Any, start: Any) -> Any:
    """A carried sum of products, of which one operand is computed in each step."""

    def step(total: Any, both: Any) -> Any:
        a, b = -both[0], both[1]
        sums = (((0,), (0,)), ((), ()))
        return total + jax.lax.dot_general(a, b, sums, preferred_element_type=total.dtype), None

    return jax.lax.scan(step, start, (x, y))[0]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("narrow", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "int8", "float32"])
def test_series_of_narrow_numbers(narrow: str, device: str) -> None:
    """What is stacked had to be of a type that NumPy itself has: an error for others, and the function unstitched."""
    random = np.random.default_rng(0)
    x, y = (random.integers(-3, 4, (STEPS, BATCH, n)) for n in (ROWS, COLUMNS))
    args = jnp.asarray(x, narrow), jnp.asarray(y, narrow), jnp.ones((ROWS, COLUMNS), jnp.float32)
    text = forced.hlo_of(summed, *args)
    graph = forced.graph_of(summed, *args)
    (loop,) = (n.id for n in graph.nodes if n.op == "while")
    assert without_sums(graph, loop, False) is not None
    made = forced.stitched(text, devices.get(device))
    (got,) = forced.run(made, args)
    np.testing.assert_array_equal(got, 1 - np.einsum("tbi,tbj->ij", x, y))


def outer(x: Any, y: Any, start: Any) -> Any:
    """A carried sum of what is multiplied element by element."""
    return jax.lax.scan(lambda total, both: (total + jnp.sin(both[0])[:, None] * both[1], None), start, (x, y))[0]


def test_a_sum_of_multiplications_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the product that it becomes left to the bits that XLA likes: on a GPU ten of float32's 23."""
    monkeypatch.setattr(hoist, "LARGE", 1)
    x, y = jnp.ones((10 * STEPS, ROWS)), jnp.ones((10 * STEPS, COLUMNS))
    graph = forced.graph_of(outer, x, y, jnp.ones((ROWS, COLUMNS)))
    (loop,) = (n.id for n in graph.nodes if n.op == "while")
    hoisted = without_sums(graph, loop, True)
    assert hoisted is not None
    products = [n for n in hoisted.nodes if n.op == "dot"]
    assert products and all(n.attributes["operand_precision"] == ("highest", "highest") for n in products)


def test_exchanged_operands_keep_their_own_precision() -> None:
    """Catches the one operand rounded as the other was to be."""
    body = """
  x = f32[9,5] parameter(0)
  y = f32[5,12] parameter(1)
  d = f32[9,12] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={default,highest}
  ROOT t = f32[12,9] transpose(d), dimensions={1,0}
"""
    (product,) = (n for n in with_simple_products(forced.graph_from(body)).nodes if n.op == "dot")
    assert product.attributes["operand_precision"] == ("highest", "default")
    assert product.operands == (1, 0)


def two_sums(x: Any, y: Any) -> Any:
    """Two carried sums of vectors multiplied, the one with columns of its own."""
    starts = jnp.zeros((x.shape[1], y.shape[1])), jnp.zeros((x.shape[1], 40))

    def step(totals: Any, both: Any) -> Any:
        a, b = jnp.sin(both[0])[:, None], both[1]
        return (totals[0] + a * b, totals[1] + a * jnp.cos(b[:40])), None

    return jax.lax.scan(step, starts, (x, y))[0]


@pytest.mark.parametrize(("columns", "taken"), [(160, [6400, 25600]), (90, [])])
def test_a_smaller_sum_is_taken_out_beside_a_large_one(columns: int, taken: list[int]) -> None:
    """It stayed, and added to half of a first cache in each step; alone it does not pay for a product."""
    x, y = jnp.ones((10 * STEPS, 160)), jnp.ones((10 * STEPS, columns))
    graph = forced.graph_of(two_sums, x, y)
    (loop,) = (n.id for n in graph.nodes if n.op == "while")
    hoisted = without_sums(graph, loop, True)
    products = [] if hoisted is None else [n.tensor.size for n in hoisted.nodes if n.op == "dot"]
    assert sorted(products) == taken
