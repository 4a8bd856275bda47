"""What wins is kept: of schedules, of a kernel and XLA's own, of the function and ``jax.jit``. And it is said."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import emit as emitters
from jax_stitch import pipeline, stitch, stitch_jit
from jax_stitch.devices.cpu import CPU_VARIABLE
from jax_stitch.emit import KernelSource
from jax_stitch.fusion import planner
from jax_stitch.ir.passes import Pipeline
from jax_stitch.jit.library import Measured
from jax_stitch.jit.tune import candidates, race
from jax_stitch.jit.tune.race import beats_first, measured
from jax_stitch.schedule import ScheduledKernel
from jax_stitch.util.timing import Timing
from jax_stitch.util.values import replace
from tests.side_by_side import kernels as kernels_of
from tests.side_by_side import same
from tests.tune.conftest import Clock

X = jnp.asarray(np.random.default_rng(0).standard_normal((512, 1024)), jnp.float32)


SMALL = X[:64, :96]


def fresh() -> Any:
    def fun(x: Any) -> Any:
        y = x - x.mean(1, keepdims=True)
        return y / jnp.sqrt((y * y).mean(1, keepdims=True))

    return fun


def two() -> Any:
    """Two kernels with a matrix product between them."""

    def fun(x: Any, w: Any) -> Any:
        y = jax.nn.softmax(x) @ w
        return y / jnp.sqrt((y * y).mean(1, keepdims=True))

    return fun


def slow(kernel: ScheduledKernel) -> KernelSource:
    """A kernel that computes the same, and counts to a million before each block."""
    source = emitters.emit(kernel)
    loop = "  for (int64_t block = first_block; block < last_block; ++block) {\n"
    assert loop in source.text
    wait = "    for (volatile int turn = 0; turn < 1000000;) turn = turn + 1;\n"
    return replace(source, text=source.text.replace(loop, loop + wait))


def test_a_slowed_schedule_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured: what is planned waits in each block, the others do not."""
    usual = stitch_jit(fresh()).plan(X)
    monkeypatch.setattr(pipeline, "emit", slow)
    plan = stitch_jit(fresh()).plan(X, autotune="top3")
    assert plan.kernels and "volatile" not in plan.kernels[0].source
    assert plan.kernels[0].schedule != usual.kernels[0].schedule
    assert plan.kernels[0].measured is not None and plan.kernels[0].measured[0] < 0.01
    function = stitch_jit(fresh(), autotune="top3")
    same(function(X), jax.jit(fresh())(X))


@pytest.mark.usefixtures("brief")
def test_a_slowed_pattern_is_not_stitched_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured: every candidate waits."""
    for module in (pipeline, candidates):
        monkeypatch.setattr(module, "emit", slow)
    function = stitch_jit(fresh(), autotune="top3")
    plan = function.plan(X)
    assert not plan.kernels and plan.launches == plan.xla_launches and plan.bytes == plan.xla_bytes
    told = [b for b in plan.boundaries if "measured: XLA's own kernels take" in b.reason]
    assert any(b.op == "reduce" for b in told) and all("a stitched one" in b.reason and " ms" in b.reason for b in told)
    assert "no kernel is faster than XLA's own" in str(plan)
    assert kernels_of(function, X) == 0
    same(function(X), jax.jit(fresh())(X))


@pytest.mark.usefixtures("zen3")
def test_one_kernel_may_go_and_another_stay(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    args = X[:256], X.T @ X
    times = iter((0.5, 1.5))
    usual = clock.measure

    def measure(run: Any) -> Any:
        clock.units = [next(times)] if run.seconds < 2 else clock.units
        return usual(run)

    monkeypatch.setattr(race, "measure", measure)
    function = stitch_jit(two(), autotune="top3")
    plan = function.plan(*args)
    assert len(plan.kernels) == 1 and plan.kernels[0].measured == (0.5, 1.0)
    assert sum("XLA's own kernels take 1 s, a stitched one 1.5 s" in b.reason for b in plan.boundaries) >= 3
    assert kernels_of(function, *args) == 1
    same(function(*args), jax.jit(two())(*args))


@pytest.mark.parametrize("whole", [0.5, 1.1])
def test_kernels_that_lose_by_themselves_may_win_together(whole: float, clock: Clock) -> None:
    """XLA's own kernels for some operations need not be those that it has for them in the function."""
    clock.units, clock.whole = [1.5], whole
    function = stitch_jit(fresh(), autotune="top3")
    plan = function.plan(X)
    assert bool(plan.kernels) == (whole < 1) == bool(kernels_of(function, X))
    assert ("stitched with every kernel 500 ms" if whole < 1 else "nor the function with all of them") in str(plan)
    same(function(X), jax.jit(fresh())(X))


def test_the_function_as_a_whole_has_to_win(clock: Clock) -> None:
    clock.whole = 1.01
    function = stitch_jit(fresh(), autotune="top3")
    plan = function.plan(X)
    assert not plan.kernels and plan.launches == plan.xla_launches
    assert "under jax.jit, 1 s, stitched 1.01 s: it runs as jax.jit runs it" in str(plan)
    assert kernels_of(function, X) == 0
    same(function(X), jax.jit(fresh())(X))


def test_another_planners_plan_may_win(clock: Clock) -> None:
    """``True`` tries them, ``"top3"`` does not; nor are they tried where the user has chosen one."""

    def both_ways(x: Any) -> Any:
        y = x - x.mean(1, keepdims=True)
        return y / jnp.sqrt((y * y).mean(1, keepdims=True)), (y * x).sum(0)

    def planned(**how: Any) -> list[str]:
        return sorted(k.schedule for k in stitch_jit(both_ways).plan(X, **how).kernels)

    beam, span = planned(), planned(planner="span")
    assert beam != span, "the test is of nothing"
    clock.whole, clock.others = 0.5, [0.4, 0.6]
    plan = stitch_jit(both_ways).plan(X, autotune=True)
    assert sorted(k.schedule for k in plan.kernels) == span and "stitched by span 400 ms" in str(plan)
    assert planned(autotune="top3") == beam
    assert planned(autotune=True, planner="span") == span
    clock.others = [0.6, 0.6]
    assert planned(autotune=True, planner="ilp") == planned(planner="ilp")


def test_the_fastest_of_the_candidates_wins(clock: Clock) -> None:
    clock.units = [0.5, 0.7, 0.2]
    plan = stitch_jit(fresh()).plan(X, autotune="top3")
    usual = stitch_jit(fresh()).plan(X)
    assert plan.kernels[0].measured == (0.2, 1.0) and plan.kernels[0].schedule != usual.kernels[0].schedule
    clock.units = [0.5, 0.7, 0.49]  # Which is noise.
    (other, *_) = stitch_jit(fresh()).plan(X + 1, autotune=True).kernels
    assert other.schedule == usual.kernels[0].schedule


def test_nearly_always_faster_is_faster() -> None:
    first = Timing((1.0, 2.0, 1.0, 2.0), 1)
    steady = measured(first, Timing((0.9, 1.8, 0.9, 1.8), 1))
    assert steady.seconds == pytest.approx(0.9 * 1.5) and steady.ahead == 1.0
    assert beats_first(steady, Measured(1.5, 0.0, 4))
    lucky = measured(first, Timing((0.1, 2.1, 0.1, 2.1), 1))
    assert lucky.ahead == 0.5 and not beats_first(lucky, Measured(1.5, 0.0, 4))
    assert not beats_first(Measured(1.5, 1.0, 4), Measured(1.5, 0.0, 4))


def test_a_race_goes_on_while_noise_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer than that: three rounds of four may be chance, and so may be half of any number."""
    turns: list[int] = []
    samples = {"first": (1.0,) * 4, "other": (0.9, 0.9, 0.9, 1.1)}

    def time_programs(programs: Any, *_: Any, **__: Any) -> dict[str, Timing]:
        turns.append(1)
        return {key: Timing(samples[key], 1) for key in programs}

    monkeypatch.setattr(race, "time_programs", time_programs)
    x = (jnp.ones(3),)
    run = race.Race(("first", "gone", "other"), lambda: dict.fromkeys(("first", "other"), list), lambda: [x], 1.0)
    found = race.measure(run)
    assert len(turns) == 2 and found["other"] == Measured(0.9, 0.75, 8) and found["gone"] == race.IMPOSSIBLE
    turns.clear()
    samples["other"] = (0.9, 0.9, 1.1, 1.1)
    assert race.measure(run)["other"].ahead == 0.5 and len(turns) == 3


def test_layers_are_measured_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are alike, each measured: products and softmaxes. (With a level 2 of 2 MB all are one kernel.)"""
    monkeypatch.setenv(CPU_VARIABLE, "zen4")
    monkeypatch.setattr(
        planner, "STREAMING", Pipeline("stream")
    )  # It would take a layer's product into the one before.

    def layers(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jax.nn.softmax(x @ w)
        return x

    plan = stitch_jit(layers).plan(X[:512, :64], X[:64, :64], autotune="top3")
    alike = len({kernel.source for kernel in plan.kernels})
    assert len(plan.kernels) == 6 > alike == len([r for r in clock.races if r.seconds < 2])


def test_what_a_user_asks_for_is_not_replaced(clock: Clock) -> None:
    asked = stitch_jit(fresh()).plan(X).kernels[0].schedule
    clock.units = [0.5, 0.1, 0.1]
    plan = stitch_jit(fresh(), templates=asked).plan(X, autotune=True)
    assert plan.kernels[0].schedule == asked
    assert all(len(r.keys) == 2 for r in clock.races)


def test_a_loop_of_unknown_length_is_not_run(clock: Clock) -> None:
    """With other values than the user's it might never end."""

    def halved(x: Any) -> Any:
        y = jax.lax.while_loop(lambda y: jnp.any(y > 1), lambda y: jnp.sin(y) * y * 0.9, x)
        return jax.nn.softmax(y, 1), y.mean(0)

    plan = stitch_jit(halved).plan(X, autotune="top3")
    assert "the whole function is not measured: how often a loop in it runs depends on its values" in str(plan)
    assert all(r.seconds < 2 for r in clock.races)
    same(stitch_jit(halved, autotune="top3")(X), jax.jit(halved)(X))


@pytest.mark.usefixtures("brief")
def test_a_loop_of_known_length_is_run() -> None:
    def steps(x: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y) * 0.5 + jnp.cos(x) * 0.1, x)

    plan = stitch_jit(steps).plan(SMALL, autotune="top3")
    assert "not measured" not in str(plan)
    same(stitch_jit(steps, autotune="top3")(SMALL), jax.jit(steps)(SMALL))


TRANSFORMS = {
    "vmap": lambda f: jax.vmap(f),
    "grad": lambda f: jax.grad(lambda x: (f(x) ** 3).sum()),
    "jit": lambda f: jax.jit(lambda x: f(x) + 1),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c) + c, c.sum()), x, None, 3),
    "vmap of grad in jit": lambda f: jax.jit(jax.vmap(jax.grad(lambda x: f(x).max()))),
}


def inside(fun: Any, **how: Any) -> Any:
    return jax.jit(stitch(fun, **how))


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("transform", "decorate"), [*((name, stitch_jit) for name in TRANSFORMS if name != "vmap"), ("vmap", inside)]
)
def test_transformations(transform: str, decorate: Any) -> None:
    """Programs are timed while JAX lowers others: neither may see the other's context."""
    x = SMALL.reshape(4, 16, 96) if "vmap" in transform else SMALL
    apply = TRANSFORMS[transform]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = apply(decorate(fresh(), autotune="top3"))(x)
    same(found, apply(jax.jit(fresh()))(x))


@pytest.mark.usefixtures("brief")
def test_in_the_background() -> None:
    function = stitch_jit(fresh(), mode="async", autotune="top3")
    expected = jax.jit(fresh())(SMALL)
    same(function(SMALL), expected)
    assert function.wait(120)
    same(function(SMALL), expected)


@pytest.mark.usefixtures("brief")
def test_narrow_types_and_x64_are_what_they_were() -> None:
    """Programs are timed with 64-bit types on; that must not be seen outside."""
    for x in (SMALL.astype(jnp.bfloat16), SMALL):
        found = stitch_jit(fresh(), autotune="top3")(x)
        assert found.dtype == x.dtype and jnp.asarray(1.0).dtype == jnp.float32
        assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]


def test_the_schedules_measured_are_those_named(clock: Clock) -> None:
    """The winner's name, as plans print it, can be asked for by ``templates``."""
    clock.units = [0.5, 0.2, 0.9]
    (kernel,) = stitch_jit(fresh()).plan(X, autotune="top3").kernels
    (again,) = stitch_jit(fresh()).plan(X, templates=kernel.schedule).kernels
    assert again.schedule == kernel.schedule and again.launch == kernel.launch
