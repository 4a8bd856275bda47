"""Units apart from their plans: they compute the same by kernels and by XLA, and plans without them still run."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from jax_stitch import devices
from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.replay import StitchedGraph, replay, unsupported
from jax_stitch.frontend.replay.order import order
from jax_stitch.fusion import FusionPlan
from jax_stitch.fusion.withdraw import withdrawn
from jax_stitch.jit.tune.candidates import candidates
from jax_stitch.jit.tune.programs import unit_race
from jax_stitch.jit.tune.units import Unit, units_of
from jax_stitch.pipeline import Stitched, segment, stitch_capture
from jax_stitch.util.options.autotune import Autotune
from tests.drawn import differences, program
from tests.fusion import forced
from tests.some import some

CHECKS = settings(
    max_examples=some(4, of=12),
    derandomize=True,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
CPU = devices.get("cpu")


def columns_and_rows(x: Any, scale: Any) -> Any:
    """Sums of columns beside sums of rows: reductions in two steps."""
    y = (x - x.mean(1, keepdims=True)) * scale
    return y, (y * x).sum(0), jnp.tanh(y).max(0)


def stitched(args: tuple[Any, ...]) -> Stitched:
    """Kernels of sums in two steps on any machine: what pays depends on its caches."""
    with forced.everything_pays():
        return stitch_capture(capture(columns_and_rows, args, CPU), CPU)


def units(made: Stitched) -> tuple[Unit, ...]:
    return units_of(made.plan.graph, [k for k in made.kernels if k.scheduled.graph is made.plan.graph])


@CHECKS
@given(st.randoms(use_true_random=False))
def test_a_plan_less_any_units_can_be_run(rng: Random) -> None:
    """No kernel that is left reads what nobody computes, and no step of a reduction is left that only kernels know."""
    with jax.enable_x64(True):
        made = program(rng, steps=12)
        note(repr(made))
        target = forced.device(rng.choice(("cpu", "h200")))
        drawn = forced.stitched(forced.hlo_of(made.fun, *made.args), target, rng.randrange(100))
        found = units(drawn)
        assert sorted(n for u in found for n in u.numbers) == list(range(len(drawn.plan.kernels)))
        gone = [u for u in found if rng.random() < 0.5]
        kept = [u for u in found if u not in gone]
        rest = withdrawn(drawn.plan, {n: "tested" for u in gone for n in u.numbers})
        segments = [segment(k, lambda *_: ()) for u in kept for k in u.kernels]
        steps = order(StitchedGraph(rest.graph, tuple(segments)))
        assert not [s for s in steps if isinstance(s, int) and rest.graph[s].op == PARTIAL]
        assert {c.node for c in rest.boundaries if c.reason == "tested"}.isdisjoint(
            i for s in segments for i in s.nodes
        )

        whole = withdrawn(drawn.plan, dict.fromkeys(range(len(drawn.plan.kernels)), "tested"))
        assert not unsupported_besides_steps(whole)
        got = jax.jit(replay(StitchedGraph(whole.graph)))([jnp.asarray(a) for a in made.args])
        wrong = differences(made, list(map(np.asarray, got)), jax.jit(made.fun)(*made.args))
        assert not wrong or not differences(made, list(map(np.asarray, got)), made.fun(*made.args)), wrong


def unsupported_besides_steps(plan: FusionPlan) -> list[str]:
    return [str(found) for found in unsupported(plan.graph) if found.node.op != PARTIAL]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_reductions_in_two_steps_are_one_again(dtype: str) -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng(0).standard_normal((512, 96))
        args = jnp.asarray(x, dtype), jnp.linspace(0.5, 1.5, 96, dtype=dtype)
        made = stitched(args)
        assert any(n.op == PARTIAL for n in made.plan.graph.nodes), "the test is of nothing"
        (unit,) = (u for u in units(made) if len(u.kernels) > 1)
        assert PARTIAL not in {unit.by_xla[s].op for s in order(StitchedGraph(unit.by_xla)) if isinstance(s, int)}
        left = withdrawn(made.plan, dict.fromkeys(range(len(made.plan.kernels)), "tested"))
        got = jax.jit(replay(StitchedGraph(left.graph)))(args)
        for a, b in zip(got, jax.jit(columns_and_rows)(*args), strict=True):
            assert a.dtype == b.dtype
            tolerance = {"float32": 1e-4, "bfloat16": 0.05, "float64": 1e-10}[dtype]
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_that_race_compute_the_same(dtype: str) -> None:
    """A candidate that does less than another would win."""
    x = np.random.default_rng(0).standard_normal((512, 96))
    args = jnp.asarray(x, dtype), jnp.linspace(0.5, 1.5, 96, dtype=dtype)
    made = stitched(args)
    for unit in units(made):
        race = unit_race(unit, candidates(unit, CPU, Autotune.TOP3), CPU)
        assert len(race.keys) > 2
        first, *_ = race.arguments()
        want, *others = [
            [np.asarray(r, np.float64) for r in jax.jit(p)(first)] for p in map(race.programs().__getitem__, race.keys)
        ]
        tolerance = 1e-4 if dtype == "float32" else 0.05
        for got in others:
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_a_unit_that_does_not_compile_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax_stitch.backend.compile import KernelCompileError
    from jax_stitch.jit.tune import programs

    args = (jnp.ones((64, 48)), jnp.ones(48))
    made = stitched(args)
    unit, *_ = units(made)
    found = candidates(unit, CPU, Autotune.TOP3)
    compile_all = programs.compile_all

    def fails_on_others(sources: Any, target: str) -> Any:
        if sources[0].text != found[0].kernels[0].source.text:
            raise KernelCompileError("name", "c++", "refused", "text")
        return compile_all(sources, target)

    monkeypatch.setattr(programs, "compile_all", fails_on_others)
    race = unit_race(unit, found, CPU)
    assert set(race.programs()) == set(race.keys[:2])
    monkeypatch.setattr(programs, "compile_all", lambda *_: (_ for _ in ()).throw(KernelCompileError(*"abcd")))
    with pytest.raises(KernelCompileError):
        race.programs()
