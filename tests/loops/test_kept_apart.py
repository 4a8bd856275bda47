"""Loops that XLA:CPU compiles as one kernel and that are unrolled in the graph: what is left to XLA of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph, stitch_jit
from jax_stitch.frontend.replay import replay
from jax_stitch.frontend.replay.apart import kept_apart
from jax_stitch.frontend.replay.stitched import StitchedGraph
from jax_stitch.graph.model import ROLLED, Graph


def checkerboard(key: jax.Array, s: jax.Array) -> jax.Array:
    """Draw spins, and roll them: XLA's kernels join pieces there."""

    def step(s: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        near = jnp.roll(s, 1, 0) + jnp.roll(s, 1, 1)
        s = jnp.where(jax.random.uniform(key, s.shape) < jax.nn.sigmoid(near), 1.0, -s)
        return s, (s * jnp.roll(s, 1, 0)).mean()

    return jax.lax.scan(step, s, jax.random.split(key, 30))[1]


def walk(key: jax.Array, s: jax.Array) -> jax.Array:
    """Draw numbers that only elementwise operations read."""

    def step(s: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        s = s * jnp.exp(0.1 * jax.random.uniform(key, s.shape))
        return s, s.mean()

    return jax.lax.scan(step, s, jax.random.split(key, 30))[1]


def body_of(function: Callable[..., Any]) -> Graph:
    lowered = jax.jit(function).lower(jax.random.key(0), jnp.ones((64, 64)))
    built = graph.build(hlo_parser.parse(lowered.compile().as_text()), {})
    return next(n.graphs["body"] for n in built.nodes if n.op == "while" and len(n.graphs["body"]) > 50)


@pytest.mark.parametrize(("function", "apart"), [(checkerboard, True), (walk, False)])
def test_random_bits_are_apart_where_their_readers_join_arrays(function: Callable[..., Any], apart: bool) -> None:
    """Catches bits that XLA computes one by one in a kernel without vectors, and a kernel of their own that only makes
    more to write and read.
    """
    body = body_of(function)
    is_one_kernel = any(ROLLED in n.attributes for n in body.nodes)
    assert is_one_kernel or jax.__version_info__ < (0, 12)  # XLA before that compiles no loop as one kernel.
    large = [s for s in kept_apart(StitchedGraph(body)).segments if max(body[i].tensor.size for i in s.outputs) > 1000]
    assert bool(large) == (apart and is_one_kernel)


@pytest.mark.parametrize("function", [checkerboard, walk])
def test_values_stay(function: Callable[..., Any]) -> None:
    """Catches results that are handed over in another order, or of another type."""
    key, s = jax.random.key(1), jnp.ones((64, 64))
    np.testing.assert_allclose(stitch_jit(function)(key, s), jax.jit(function)(key, s), rtol=1e-6)


MODULE = """HloModule m

%twice (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  ROOT %y = f32[8] sine(%x)
}

ENTRY %main {
  %x = f32[8] parameter(0)
  %a = f32[8] sine(%x)
  %b = f32[8] reverse(%a), dimensions={0}
  %c = f32[8] add(%a, %b)
  ROOT %d = f32[16] concatenate(%c, %b), dimensions={0}
}
"""


def marked(built: Graph, names: Sequence[str]) -> Graph:
    nodes = []
    for n in built.nodes:
        nodes.append(n if n.name not in names else type(n)(**{f: getattr(n, f) for f in n.__struct_fields__} | MARK))
    return type(built)(built.name, tuple(nodes), built.parameters, built.results, built.single, built.layouts)


MARK = {"attributes": {ROLLED: True}}


def test_what_comes_back_is_not_cut_out() -> None:
    """Catches a function that waits for a value which is computed from its own results."""
    built = marked(graph.build(hlo_parser.parse(MODULE), {}), ["a", "c"])
    assert not kept_apart(StitchedGraph(built)).segments
    x = np.arange(8, dtype=np.float32)
    (got,) = replay(StitchedGraph(built))([x])
    np.testing.assert_allclose(got, np.concatenate([np.sin(x) + np.sin(x)[::-1], np.sin(x)[::-1]]), rtol=1e-6)
