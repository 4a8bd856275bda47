"""Weights transposed before a loop that multiplies by them along their rows."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.graph import build
from jax_stitch.graph.model import Graph
from jax_stitch.loops.rewrites.hoist import without_sums
from jax_stitch.loops.rewrites.transposed_weights import with_transposed_weights
from jax_stitch.loops.teams import team_choice
from jax_stitch.pipeline import stitch_capture


def normal(seed: int, *dims: int) -> Any:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def along_rows(h: Any, w: Any, v: Any) -> Any:
    """A product along the rows of both operands, and one of which the right operand's columns are neighbours."""
    return jax.lax.fori_loop(0, 6, lambda _, h: jnp.tanh(jnp.einsum("bi,oi->bo", h, w) @ v), h)


def read_twice(h: Any, w: Any) -> Any:
    """The same weights both ways: nothing is gained by turning them."""
    return jax.lax.fori_loop(0, 6, lambda _, h: jnp.tanh(jnp.einsum("bi,oi->bo", h, w) @ w), h)


def gradient(w: Any, xs: Any) -> Any:
    def loss(w: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(xs.shape[1:], xs.dtype), xs)
        return jnp.sum(h**2)

    return jax.grad(loss)(w)


def rewritten(fun: Any, *args: Any) -> tuple[Graph, Graph]:
    graph = build(hlo_parser.parse(capture(fun, args, devices.get("cpu")).text))
    (loop,) = [n.id for n in graph.nodes if n.op == "while"]
    return graph, with_transposed_weights(graph, loop)


def summed(graph: Graph) -> list[tuple[int, ...]]:
    """Along which dimensions of its right operand each product in a loop sums."""
    bodies = [n.graphs["body"] for n in graph.nodes if n.op == "while"]
    return sorted(tuple(n.attributes["rhs_contracting_dims"]) for b in bodies for n in b.nodes if n.op == "dot")


def test_only_what_is_read_along_its_rows_alone_is_transposed() -> None:
    """Weights that are read both ways would be there twice."""
    before, after = rewritten(along_rows, normal(0, 8, 16), normal(1, 24, 16), normal(2, 24, 16))
    assert (summed(before), summed(after)) == ([(0,), (1,)], [(0,), (0,)])
    assert [n.tensor.dims for n in after.nodes if n.op == "transpose"] == [(16, 24)]
    before, after = rewritten(read_twice, normal(0, 8, 16), normal(1, 24, 16))
    assert after is before


@pytest.mark.parametrize("batch", [1, 16])
def test_gradients_of_recurrent_nets_agree(batch: int) -> None:
    """The wrong operand transposed, or its dimensions left as they were."""
    w, xs = normal(3, 32, 32) / 6, normal(4, 10, batch, 32)
    right = jax.jit(gradient)(w, xs)
    np.testing.assert_allclose(stitch_jit(gradient, mode="now")(w, xs), right, 0, 2e-5 * float(np.abs(right).max()))


@pytest.mark.usefixtures("zen4")
def test_a_recurrent_gradient_is_worth_a_kernel() -> None:
    """Both ways through a GRU: with weights as they were, the way back took twice as long and stayed with XLA."""
    from bench.small.programs import PROGRAMS

    fun, args = PROGRAMS["gru_128_gradient"].make()
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float32), jax.tree.leaves(args))
    tree = jax.tree.structure(args)
    cpu = devices.get("cpu")
    made = stitch_capture(capture(lambda *flat: fun(*jax.tree.unflatten(tree, flat)), types, cpu), cpu)
    teams = [p.team.loop for k in made.kernels for p in k.scheduled.parts if p.team is not None]
    assert len([t for t in teams if t.trips > 1]) == 2


def test_a_column_is_read_along_its_rows() -> None:
    """A batch of one is a matrix of one column, whose weights were not transposed."""

    def column(h: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 6, lambda _, h: jnp.tanh(w @ h), h)

    before, after = rewritten(column, normal(0, 24, 1), normal(1, 24, 24))
    assert [n.tensor.dims for n in after.nodes if n.op == "transpose"] == [(24, 24)]
    assert before is not after
    h, w = normal(0, 24, 1), normal(1, 24, 24) / 5
    right = np.asarray(h, np.float64)
    for _ in range(6):
        right = np.tanh(w.astype(np.float64) @ right)
    np.testing.assert_allclose(stitch_jit(column, mode="now")(h, w), right, 0, 1e-5)


@pytest.mark.parametrize(("hidden", "is_taken"), [(32, False), (128, True)])
def test_sums_of_vectors_by_vectors_are_taken_out_where_they_are_large(hidden: int, is_taken: bool) -> None:
    """Of one sequence: each step added to all of a matrix that no first cache holds. A small one is faster there."""
    xs = normal(1, 8, 1, hidden)
    graph = build(hlo_parser.parse(capture(gradient, (normal(0, hidden, hidden), xs), devices.get("cpu")).text))
    loops = [n.id for n in graph.nodes if n.op == "while"]
    found = [changed for i in loops if (changed := without_sums(graph, i, True)) is not None]
    assert not any(without_sums(graph, i, False) for i in loops)
    products = [n.attributes["lhs_contracting_dims"] for g in found for n in g.nodes if n.op == "dot"]
    assert ((0,) in map(tuple, products)) is is_taken
    # What is multiplied is changed over, not the product: that would be a copy of it.
    assert not [n for g in found for n in g.nodes if n.op == "transpose" and g[n.operands[0]].op == "dot"]


def test_what_is_taken_out_of_a_loop_becomes_a_kernel_too() -> None:
    """It was left to XLA, whose second core had to be woken for it, and a copy of XLA's transposed the weights."""
    args = tuple(jax.ShapeDtypeStruct(d, np.float32) for d in ((128, 128), (32, 1, 128)))
    plan = stitch_jit(gradient).plan(*args)
    apart = [k.source for k in plan.kernels if "a loop of" not in k.source]
    assert any("ST_PRODUCT" in s for s in apart)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("hidden", [40, 130])
def test_gradients_of_one_sequence(hidden: int, dtype: str) -> None:
    """The vectors of other steps, rows and columns exchanged, or the steps the wrong way round."""
    w, xs = normal(3, hidden, hidden).astype(np.float64) / hidden**0.5, normal(4, 10, 1, hidden).astype(np.float64)
    states = [np.zeros((1, hidden))]
    for x in xs:
        states.append(np.tanh(states[-1] @ w + x))
    right, slope = np.zeros_like(w), 2 * states[-1]
    for before, after in reversed(list(itertools.pairwise(states))):
        back = slope * (1 - after**2)
        right += before.T @ back
        slope = back @ w.T
    with jax.enable_x64(dtype == "float64"):
        got = stitch_jit(gradient, mode="now")(jnp.asarray(w, dtype), jnp.asarray(xs, dtype))
    limit = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(np.asarray(got, np.float64), right, 0, limit * np.abs(right).max())


def test_sums_taken_out_of_a_loop_stay_in_no_kernel_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA reduces fifty steps window by window, and wakes a core for it: that took longer than both loops."""
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)

    def pulled(masses: Any, x: Any) -> Any:
        def loss(masses: Any) -> Any:
            def step(x: Any, _: Any) -> Any:
                apart = x[None] - x[:, None]
                pull = jnp.sum(apart * (masses / (jnp.sum(apart**2, -1) + 0.1))[..., None], 1)
                return x + 0.01 * pull, None

            return jnp.sum(jax.lax.scan(step, x, None, length=50)[0] ** 2)

        return jax.grad(loss)(masses)

    plan = stitch_jit(pulled).plan(jax.ShapeDtypeStruct((5,), np.float32), jax.ShapeDtypeStruct((5, 3), np.float32))
    assert "reduce" not in {op for (op, _), _ in plan.stops()}


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize(("hidden", "in_tiles"), [(40, False), (130, True)])
def test_large_weights_are_transposed_square_by_square(hidden: int, in_tiles: bool) -> None:
    """Line by line each element loaded a line of its own: a third of the time that an LSTM's gradient took."""
    plan = stitch_jit(gradient).plan(normal(0, hidden, hidden), normal(1, 32, 1, hidden))
    assert any("ST_EACH_SQUARE" in k.source for k in plan.kernels) is in_tiles
