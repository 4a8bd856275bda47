"""What planning a loop takes, counted: it grows with the loop's body and not with its square."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jax_stitch import devices
from jax_stitch.analysis import results, spread
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.graph import build
from jax_stitch.graph.model import Graph
from jax_stitch.loops import nest_walk
from jax_stitch.loops.thread_loops import thread_loops

CPU = devices.get("cpu")


def oscillators(count: int) -> Graph:
    """A loop that carries so many numbers, each of which feels all others."""

    def step(carry: tuple[Any, ...], x: Any) -> tuple[tuple[Any, ...], Any]:
        force = x * sum(jnp.cos(c) for c in carry)
        moved = tuple(jnp.sin(c) + force for c in carry)
        return moved, moved[0]

    def run(carry: tuple[Any, ...], xs: Any) -> Any:
        return lax.scan(step, carry, xs)

    args = (tuple(jax.ShapeDtypeStruct((16,), jnp.float32) for _ in range(count)), jnp.ones(50))
    return build(module_of(capture(run, args, CPU).text))


def visits(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Elements that are visited, and neighbours of bound values that are looked up, while its loops are planned."""
    counted = [0, 0]
    kind, look_up = nest_walk._Iteration.kind, spread.to_result

    def counting_kind(self: Any, element: Any) -> str:
        counted[0] += 1
        return kind(self, element)

    def counting_look_up(*at: Any) -> Any:
        counted[1] += 1
        return look_up(*at)

    with monkeypatch.context() as patched:
        patched.setattr(nest_walk._Iteration, "kind", counting_kind)
        patched.setattr(spread, "to_result", counting_look_up)
        results.forget()
        assert thread_loops(graph, CPU).patterns
    return counted[0], counted[1]


def test_the_work_grows_with_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each carried value was followed by itself, through all that it shares with the others."""
    before, after = visits(oscillators(16), monkeypatch), visits(oscillators(64), monkeypatch)
    assert all(b <= 1.3 * (64 / 16) * a for a, b in zip(before, after, strict=True)), (before, after)
