"""Long reductions in a loop's body, made in two steps for a GPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import graph
from jax_stitch.checking import check_function
from jax_stitch.loops.rewrites.long_reductions import in_steps
from tests.fusion import forced
from tests.graph.helpers import ADD, assert_equal, both, ops

H200 = forced.device("h200", multiprocessors=4)


def greedy(state: Any, weights: Any, table: Any) -> Any:
    """Words that a decoder takes one after the other, with their probabilities."""

    def step(h: Any, _: Any) -> Any:
        h = jnp.tanh(h @ weights)
        scores = h @ table
        best = jnp.argmax(scores, -1)
        chance = jnp.exp(scores.max(-1) - jax.nn.logsumexp(scores, -1))
        return h + best[:, None] * 1e-4, (best, chance)

    return jax.lax.scan(step, state, None, length=3)[1]


def test_a_decoder() -> None:
    """Parts of another row, indices that count from a part's start, or a tie that the later part wins."""
    random = np.random.default_rng(5)
    state, weights = random.standard_normal((2, 8)), random.standard_normal((8, 8)) / 3
    table = np.round(random.standard_normal((8, 2304)))
    args = [np.asarray(a, np.float32) for a in (state, weights, table)]
    kernels = forced.stitched(forced.hlo_of(greedy, *args), H200)
    loops = [p.pattern.loop for k in kernels.kernels for p in k.scheduled.parts if p.team is not None]
    assert loops, "no team runs it"
    found = check_function(kernels, args)
    assert not found.errors, str(found)
    for got, wanted in zip(jax.tree.leaves(found.results), jax.tree.leaves(jax.jit(greedy)(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4)


def test_a_reduction_of_no_dimension_stays() -> None:
    """A scalar has no last dimension."""
    _, built = both(
        """
  %x = f32[] parameter(0)
  %z = f32[] constant(0)
  ROOT %b = f32[] reduce(%x, %z), dimensions={}, to_apply=%add""",
        ADD,
    )
    assert ops(graph.rewrite(built, [in_steps])) == ops(built)


@pytest.mark.parametrize(
    ("dims", "initial", "dimension", "split"),
    [
        ((2, 4096), 0, 1, True),
        ((2, 4096), 1, 1, False),  # It would count twice.
        ((4096, 2), 0, 0, False),  # Its elements are no neighbours.
        ((2, 4099), 0, 1, False),  # A prime.
        ((2, 1024), 0, 1, False),
        ((2000, 4096), 0, 1, False),
    ],
)
def test_what_is_made_in_steps(dims: tuple[int, int], initial: int, dimension: int, split: bool) -> None:
    flat, built = both(
        f"""
  %x = f32[{dims[0]},{dims[1]}]{{1,0}} parameter(0)
  %z = f32[] constant({initial})
  ROOT %b = f32[{dims[1 - dimension]}]{{0}} reduce(%x, %z), dimensions={{{dimension}}}, to_apply=%add""",
        ADD,
    )
    made = graph.rewrite(built, [in_steps])
    graph.verify(made)
    assert ops(made).count("reduce") == 1 + split
    assert_equal(flat, made, np.random.default_rng(0).integers(0, 9, dims).astype(np.float32))
