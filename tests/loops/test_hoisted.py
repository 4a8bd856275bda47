"""Sums taken out of loops whose terms are products of narrower numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.loops.hoist import without_sums
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
