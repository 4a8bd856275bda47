"""On a CPU the body of a pass is as long as a compiler is soon done with; longer ones are passes of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.schedule.bodies import LONGEST
from jax_stitch.schedule.divided import MOST_SUMS
from jax_stitch.schedule.model import LoopPass, OncePass
from tests.fusion import forced

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
COUNT = 60


def stores(x: Any, numpy: Any = jnp) -> list[Any]:
    return [numpy.tanh(x * (n + 1)) - x.mean(-1, keepdims=True) for n in range(COUNT)]


def sums(x: Any, numpy: Any = jnp) -> list[Any]:
    return [numpy.tanh(x * (n + 1)).sum(-1) for n in range(COUNT)]


def alike(x: Any) -> list[Any]:
    """All of it depends on a long chain, which each pass would compute once more."""
    for n in range(LONGEST):
        x = x * (1.0 + 0.001 * n) + 0.25
    return [x + n for n in range(COUNT)]


def bodies(function: Callable[[Any], Any], device: str) -> list[int]:
    """How many values each pass stores or reduces, of passes that do more than one."""
    target = forced.device(device)
    graph = forced.graph_of(function, X)
    kernels = forced.scheduled(forced.plan_of(graph, target, None), target)
    passes = [s for kernel in kernels for part in kernel.parts for s in part.passes]
    found = [len(s.writes) + len(s.reduces) for s in passes if isinstance(s, LoopPass)]
    found += [len(s.writes) for s in passes if isinstance(s, OncePass)]
    return sorted((count for count in found if count > 1), reverse=True)


@pytest.mark.parametrize("function", (stores, sums))
def test_a_long_body_is_cut(function: Callable[[Any], Any]) -> None:
    """In pieces that are long enough to be worth a pass."""
    found = bodies(function, "cpu")
    assert COUNT // 4 <= max(found) <= COUNT * 3 // 4


@pytest.mark.parametrize("function", (stores, sums))
def test_not_on_a_gpu(function: Callable[[Any], Any]) -> None:
    """There each pass would read its row from memory once more."""
    assert set(bodies(function, "h200")) == {COUNT}


def test_what_would_be_computed_twice_stays_together() -> None:
    assert bodies(alike, "cpu") == [COUNT]


@pytest.mark.parametrize("function", (stores, sums))
def test_results(function: Callable[..., Any]) -> None:
    for found, expected in zip(stitch_jit(function, mode="now")(X), function(X, np), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_many_sums_of_their_own_are_few_in_a_pass_of_a_gpu() -> None:
    """A thread's registers were all taken by the last step of a sum of many sums, and then spilled."""

    def separate(x: Any) -> list[Any]:
        parts = x.reshape(COUNT // 2, -1, 64)
        return [jnp.tanh(part).sum(-1) for part in parts]

    target = forced.device("h200")
    graph = forced.graph_of(separate, np.zeros((COUNT // 2 * 8, 64), np.float32))
    kernels = forced.scheduled(forced.plan_of(graph, target, None), target)
    counts = [len(s.reduces) for k in kernels for p in k.parts for s in p.passes if isinstance(s, LoopPass)]
    assert sum(counts) == COUNT // 2 and max(counts) <= MOST_SUMS
