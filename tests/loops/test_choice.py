"""Which of the ways that a loop can run on a CPU is estimated faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.demo.cases import cart_pole
from jax_stitch.frontend.capture import capture
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.cost.team_cost import nest_seconds, team_seconds
from jax_stitch.loops.teams.team import team_loop
from jax_stitch.pipeline import stitch_capture


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
    cpu = devices.get("cpu")
    stitch_capture(capture(poles(unroll), types, cpu), cpu)
    return found[0]


@pytest.mark.usefixtures("zen3")
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


def fista(a: Any, b: Any, x: Any) -> Any:
    def step(carried: Any, _: Any) -> Any:
        x, y = carried
        z = y - 0.003 * (a.T @ (a @ y - b))
        new = jnp.sign(z) * jnp.maximum(jnp.abs(z) - 0.01, 0)
        return (new, new + 0.7 * (new - x)), None

    return jax.lax.scan(step, (x, x), None, length=100)[0][0]


def spikes(w: Any, inputs: Any, x: Any) -> Any:
    def step(carried: Any, now: Any) -> Any:
        v, z = carried
        v = v * 0.9 * (1 - z) + now + z @ w
        z = (v > 1).astype(v.dtype)
        return (v, z), z

    return jax.lax.scan(step, (x, x), inputs)[1]


def knapsack(weights: Any, values: Any, x: Any) -> Any:
    def step(best: Any, item: Any) -> Any:
        weight, value = item
        taken = jnp.where(jnp.arange(best.size) >= weight, jnp.roll(best, weight) + value, -1)
        return jnp.maximum(best, taken), None

    return jax.lax.scan(step, x, (weights, values))[0]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (fista, [("f4", 100, 60), ("f4", 100), ("f4", 60)]),
        (spikes, [("f4", 100, 100), ("f4", 200, 100), ("f4", 100)]),
        (knapsack, [("i4", 60), ("f4", 60), ("f4", 500)]),
    ],
    ids=["fista", "spikes", "knapsack"],
)
def test_small_products_and_rolls_go_in_teams(function: Callable[..., Any], shapes: list[Any]) -> None:
    """XLA took 2 to 5 times as long for each of them, and was left with it."""
    device = devices.get("zen4")
    types = [jax.ShapeDtypeStruct(dims, np.dtype(dtype)) for dtype, *dims in shapes]
    plan = stitch_capture(capture(function, types, device), device).plan
    loops = [n for n in plan.graph.nodes if n.op == "while"]
    assert loops and {n.id for n in loops} <= {i for kernel in plan.kernels for p in kernel for i in p.nodes}
