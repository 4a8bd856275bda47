"""Which of the ways that a loop can run on a CPU is estimated faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.capture import capture
from jax_stitch.demo.cases import cart_pole
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.team import team_loop
from jax_stitch.loops.team_cost import nest_seconds, team_seconds
from jax_stitch.pipeline import stitch_capture

CPU = devices.get("cpu")


def poles(unroll: int) -> Callable[..., Any]:
    """Poles on carts, some steps written as one."""

    def run(x: Any, v: Any, pushes: Any) -> Any:
        def step(carry: Any, push: Any) -> Any:
            x, v = carry
            force = push + 0.05 * v * v * jnp.sin(x)
            v = v + 0.02 * (9.8 * jnp.sin(x) - jnp.cos(x) * force) / (1.3 - 0.1 * jnp.cos(x) ** 2)
            return (x + 0.02 * v, v), x * force

        return jax.lax.scan(step, (x, v), pushes, unroll=unroll)

    return run


def estimates(monkeypatch: pytest.MonkeyPatch, unroll: int) -> tuple[float, float]:
    """Seconds of one core in all steps, by rows in threads and in teams."""
    found: list[tuple[float, float]] = []

    def asked(graph: Any, pattern: Any, device: Any) -> bool:
        (node,) = (graph[i] for i in pattern.nodes if graph[i].op == "while")
        loop = team_loop(graph, node, device)
        teams = loop.trips * team_seconds(loop, device) * min(loop.rows, device.multiprocessors)
        found.append((nest_seconds(pattern.loop, device), teams))
        return False

    monkeypatch.setattr(loop_patterns, "_is_faster_in_teams", asked)
    types = [jax.ShapeDtypeStruct(dims, np.float32) for dims in ((512,), (512,), (64, 512))]
    stitch_capture(capture(poles(unroll), types, CPU), CPU)
    return found[0]


def test_steps_written_as_one_are_counted_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a phase makes for itself alone was counted as nothing: a team seemed four times as fast as it was."""
    threads, teams = estimates(monkeypatch, 1)
    threads_of_eight, teams_of_eight = estimates(monkeypatch, 8)
    assert threads_of_eight == pytest.approx(threads, rel=0.3)
    assert teams_of_eight == pytest.approx(teams, rel=0.3)
    assert teams_of_eight == pytest.approx(threads_of_eight, rel=0.5)


def test_what_teams_do_not_run_stays_in_threads() -> None:
    """Faster in teams than in threads by estimate, and faster still as XLA's kernels: it was left to XLA, whose steps
    took twelve times as long.
    """
    function, args = cart_pole(2048, 100)
    plan = stitch_jit(function).plan(*args)
    assert any("// a loop of 100 steps" in k.source for k in plan.kernels)
