"""Streams as loops over tiles, run by XLA: the same values as those of the program that they come from."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch import graph as graphs
from jax_stitch.frontend.capture.function import capture
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion.streams.choice import is_streamable
from jax_stitch.fusion.streams.exchanged import exchanged
from jax_stitch.fusion.streams.rewrite import streamed
from jax_stitch.fusion.streams.separation import first_sweep
from jax_stitch.fusion.streams.stream import streams
from jax_stitch.fusion.streams.tiling import tiling
from jax_stitch.graph.model import Graph
from tests.fusion import forced
from tests.streams.programs import PROGRAMS, Program, attention, causal, heads, nowhere, window

CPU = devices.get("zen3")


def graph_of(program: Program) -> Graph:
    return graphs.build(module_of(capture(program.function, program.arguments, CPU).text))


def rewritten(graph: Graph, most: int = 16) -> Graph | None:
    """The graph with all streams as loops; None where there is none."""
    made = graph
    while (found := _next(made, most)) is not None:
        graphs.verify(found)
        made = found
    return None if made is graph else made


def _next(graph: Graph, most: int) -> Graph | None:
    for stream in streams(graph):
        first = first_sweep(stream)
        tiles = tiling(first, most, most) if first is not None and is_streamable(first) else None
        if first is not None and tiles is not None:
            return streamed(first, tiles, devices.get("zen4"))
    return None


def run(graph: Graph, arguments: tuple[Any, ...]) -> list[np.ndarray]:
    results = jax.jit(replay(StitchedGraph(graph, (), {})))(list(arguments))
    return [np.asarray(r, np.float64) for r in results]


def agree(program: Program, tolerance: float = 2e-6) -> None:
    made = rewritten(graph_of(program))
    assert made is not None
    expected = jax.tree.leaves(jax.jit(program.function)(*program.arguments))
    for result, wanted in zip(run(made, program.arguments), expected, strict=True):
        wide = np.asarray(wanted, np.float64)
        largest = np.abs(wide[np.isfinite(wide)]).max(initial=1.0)
        np.testing.assert_allclose(result, wide, tolerance, tolerance * largest)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(name: str) -> None:
    """Catches sums that are not corrected, tiles that are left out, and axes that are taken for others."""
    agree(PROGRAMS[name], 2e-2 if "bf16" in name else 2e-6)


PLACES = ("q", "k", "v")


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mask", [None, causal, window, nowhere], ids=["full", "causal", "window", "nowhere"])
def test_special_values_stay(mask: Any, place: str, value: float) -> None:
    """Catches tiles that are skipped although zero times infinity is in them, and maxima that lose NaN."""
    arguments = [np.array(a) for a in heads(48)]
    arguments[PLACES.index(place)][0, 40, 1, 3] = value
    arguments[PLACES.index(place)][1, 5, 2, :] = value
    program = Program(lambda q, k, v: attention(q, k, v, mask=mask), tuple(arguments))
    agree(program)


@pytest.mark.parametrize("scale", [1e-30, 30.0, 1e4])
def test_large_scores_do_not_overflow(scale: float) -> None:
    """Catches exponentials of what is not yet reduced by the maximum."""
    q, k, v = heads(48)
    agree(Program(lambda q, k, v: attention(q * scale, k, v, mask=causal), (q, k, v)), 2e-5)


def test_rows_that_grow_are_corrected() -> None:
    """The maximum grows in each tile: catches a correction in the wrong direction, or of the wrong sum."""
    q, k, v = heads(48)
    k = k + 3.0 * np.arange(48, dtype=np.float32)[None, :, None, None]
    agree(Program(attention, (np.abs(q), k, v)), 2e-5)
    agree(Program(attention, (np.abs(q), k[:, ::-1], v)), 2e-5)


def vjp(q: Any, k: Any, v: Any, g: Any, **options: Any) -> Any:
    result, back = jax.vjp(lambda *a: attention(*a, **options), q, k, v)
    return result, back(jnp.tanh(result) * g)


GRADIENTS = {
    "full": vjp,
    "causal": partial(vjp, mask=causal),
    "window, soft cap": partial(vjp, mask=window, cap=20.0),
    "finite fill": partial(vjp, mask=causal, fill=-1e9),
}


@pytest.mark.parametrize("is_exchanged", [False, True])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_need_several_loops(name: str, is_exchanged: bool) -> None:
    """Catches loops that read what later ones make, and sums over the wrong of two equal axes."""
    arguments = *heads(40, 56), heads(40)[1]
    graph = graph_of(Program(GRADIENTS[name], arguments))
    made = rewritten(exchanged(graph) if is_exchanged else graph)
    assert made is not None
    assert not any(n.op == "dot" for n in made.nodes)
    assert sum(n.op == "while" for n in made.nodes) == (3 if is_exchanged else 4)
    expected = jax.tree.leaves(jax.jit(GRADIENTS[name])(*arguments))
    for result, wanted in zip(run(made, arguments), expected, strict=True):
        np.testing.assert_allclose(result, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("place", range(4), ids=("q", "k", "v", "cotangent"))
def test_special_values_stay_in_gradients(place: int, value: float) -> None:
    """Catches tiles that are skipped although zero times infinity is in them."""
    arguments = [np.array(a) for a in (*heads(48), heads(48)[1])]
    arguments[place][0, 40, 1, 3] = value
    graph = graph_of(Program(GRADIENTS["causal"], tuple(arguments)))
    made = rewritten(graph)
    assert made is not None
    expected = jax.tree.leaves(jax.jit(GRADIENTS["causal"])(*arguments))
    for result, wanted in zip(run(made, tuple(arguments)), expected, strict=True):
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(wanted))


def weighted(a: Any, b: Any, w: Any) -> Any:
    return (w * (a @ b.T)).sum(1), (w * (a @ b.T) * 2.0).sum(0)


def test_sums_are_exchanged() -> None:
    """Catches weights and factors of the wrong side, and another order of dimensions."""
    rng = np.random.default_rng(0)
    arguments = tuple(rng.standard_normal(s).astype(np.float32) for s in ((24, 8), (40, 8), (24, 40)))
    graph = forced.graph_of(weighted, *arguments)
    made = exchanged(graph)
    graphs.verify(made)
    assert [n.tensor.dims for n in made.nodes if n.op == "dot"] == [(24, 8), (40, 8)]
    for result, wanted in zip(run(made, arguments), weighted(*arguments), strict=True):
        np.testing.assert_allclose(result, wanted, 1e-5, 1e-5)


def counted_too(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T
    count = (scores > 0).astype(np.int32)
    return jax.nn.softmax(scores) @ v, count.sum(1), count.max(1), (scores * 3).astype(np.int32).min(1)


def keys_of_each_query(q: Any, k: Any, v: Any) -> Any:
    keys = jnp.sin(q[:, None] + k[None])
    return jax.nn.softmax(jnp.einsum("qd,qkd->qk", q, keys)) @ v


def complex_weights(q: Any, k: Any, v: Any) -> Any:
    scores = q @ (k.T + 1j * k.T[:, ::-1])
    return jnp.abs((scores / (1 + jnp.abs(scores))) @ v.astype(scores.dtype))


def two_contractions(q: Any, k: Any, v: Any) -> Any:
    q, k = (a.reshape(-1, 4, 4) for a in (q, k))
    return jax.nn.softmax(jnp.einsum("qab,kab->qk", q, k)) @ v


def both_ways(q: Any, k: Any, v: Any) -> Any:
    """The same scores normalised along either axis."""
    scores = q @ k.T
    return jax.nn.softmax(scores, 1) @ v, jax.nn.softmax(scores, 0).T @ q


@pytest.mark.parametrize(
    "function",
    [counted_too, keys_of_each_query, complex_weights, two_contractions, both_ways],
    ids=lambda f: f.__name__,
)
def test_what_fits_badly_stays_right(function: Any) -> None:
    """Catches neutral values of floats for integers, and products that are no steps by lanes."""
    program = Program(function, normal_matrices())
    made = rewritten(graph_of(program))
    expected = jax.tree.leaves(jax.jit(function)(*program.arguments))
    if made is not None:
        for result, wanted in zip(run(made, program.arguments), expected, strict=True):
            np.testing.assert_allclose(result, wanted, 2e-5, 2e-5)


def two_scores(q: Any, k: Any, v: Any, first: float, second: float) -> Any:
    """One mask for two softmaxes, whose fill counts in one of them alone."""
    mask = causal(jnp.arange(len(q))[:, None], jnp.arange(len(k)))
    scores = q @ k.T
    filled = (jnp.where(mask, scores * scale, -5.0) for scale in (first, second))
    return sum(jax.nn.softmax(s) @ v for s in filled)


@pytest.mark.parametrize("scales", [(0.1, 400.0), (400.0, 0.1)])
def test_a_mask_of_two_scores_asks_both(scales: tuple[float, float]) -> None:
    """Catches tiles that are skipped by the maximum of another exponent."""
    agree(Program(lambda q, k, v: two_scores(q, k, v, *scales), normal_matrices()), 2e-5)


def centred(x: Any, y: Any) -> Any:
    """A variance: its terms are not separated, since they would cancel."""
    s = x @ y.T
    mean = s.mean(1, keepdims=True)
    return ((s - mean) ** 2) @ y, s.max(1)


def returned_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return weights @ v, weights


def sorted_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return weights @ v, jnp.sort(weights, 1)[:, 0]


@pytest.mark.parametrize("function", [returned_too, sorted_too], ids=lambda f: f.__name__)
def test_what_is_read_elsewhere_is_open(function: Any) -> None:
    """Catches streams that are taken for closed, so that their values would be computed twice."""
    arguments = normal_matrices()
    found = [first_sweep(r) for r in streams(graph_of(Program(function, arguments)))]
    assert [r.is_closed for r in found if r is not None and is_streamable(r)] == [False]
    agree(Program(function, arguments), 2e-5)


def test_what_cancels_waits() -> None:
    """Catches sums of squared differences that are separated: they need the mean first."""
    graph = graph_of(Program(centred, normal_matrices()[:2]))
    (first,) = (r for r in map(first_sweep, streams(graph)) if r is not None and is_streamable(r))
    assert [graph[r.node].op for r in first.reductions] == ["reduce", "reduce"]
    agree(Program(centred, normal_matrices()[:2]), 1e-4)


def normal_matrices() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((n, 16)).astype(np.float32) for n in (48, 64, 64))
