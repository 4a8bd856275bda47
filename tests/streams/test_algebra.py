"""Regions as loops over tiles, run by XLA: the same values as those of the program that they come from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch import graph as graphs
from jax_stitch.capture.function import capture
from jax_stitch.capture.module import module_of
from jax_stitch.fusion.streams.choice import is_streamable
from jax_stitch.fusion.streams.region import regions
from jax_stitch.fusion.streams.rewrite import streamed
from jax_stitch.fusion.streams.tiling import tiling
from jax_stitch.graph.model import Graph
from jax_stitch.replay import StitchedGraph, replay
from tests.streams.programs import PROGRAMS, Program, attention, causal, heads, nowhere, window

CPU = devices.get("zen3")


def graph_of(program: Program) -> Graph:
    return graphs.build(module_of(capture(program.function, program.arguments, CPU).text))


def rewritten(graph: Graph, most: int = 16) -> Graph | None:
    """The graph with all regions as loops; None where there is none."""
    made = graph
    while True:
        for region in regions(made):
            tiles = tiling(region, most) if is_streamable(region) else None
            following = None if tiles is None else streamed(region, tiles, 1.0)
            if following is not None:
                graphs.verify(following)
                made = following
                break
        else:
            return None if made is graph else made


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


def centred(x: Any, y: Any) -> Any:
    """A variance: its terms are not separated, since they would cancel."""
    s = x @ y.T
    mean = s.mean(1, keepdims=True)
    return ((s - mean) ** 2).sum(1), s.max(1)


def read_elsewhere(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return weights @ v, weights[0]


def sorted_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return weights @ v, jnp.sort(weights, 1)[:, 0]


@pytest.mark.parametrize("function", [read_elsewhere, sorted_too], ids=lambda f: f.__name__)
def test_what_is_read_elsewhere_is_no_region(function: Any) -> None:
    arguments = normal_matrices()
    assert rewritten(graph_of(Program(function, arguments))) is None


def test_what_cancels_is_no_region() -> None:
    assert rewritten(graph_of(Program(centred, normal_matrices()[:2]))) is None


def normal_matrices() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((n, 16)).astype(np.float32) for n in (48, 64, 64))
