"""Loops of unknown length in one team: as many steps as XLA takes, and what they leave is XLA's.

Iterative solvers end so: conjugate gradients, power iteration, fixed points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.teams import team_choice
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced
from tests.loops.agreement import assert_equals_xla

RNG = np.random.default_rng(3)
V = np.abs(RNG.standard_normal(23)).astype(np.float32)
M = RNG.standard_normal((23, 23)).astype(np.float32)
SPD = M @ M.T + 23 * np.eye(23, dtype=np.float32)
loop = jax.lax.while_loop


def conjugate_gradients(a: Any, b: Any) -> Any:
    return jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, tol=1e-5)[0]


def power_iteration(a: Any, v: Any) -> Any:
    def step(s: Any) -> Any:
        w = a @ s[0]
        w = w / jnp.linalg.norm(w)
        return w, jnp.max(jnp.abs(w - s[0])), s[2] + 1

    return loop(lambda s: (s[1] > 1e-3) & (s[2] < 50), step, (v, jnp.ones((), a.dtype), 0))[::2]


def alone(v: Any) -> Any:
    """One value is carried."""
    return loop(lambda s: s.sum() < 100, lambda s: jnp.tanh(s) * 1.5 + s.mean() + 0.3, v)


def never(v: Any) -> Any:
    return loop(lambda s: s[0].sum() < -1e9, lambda s: (s[0] * 2 + s[0].sum(), s[1] + 1), (v, 7))


def once(v: Any) -> Any:
    return loop(lambda s: s[1] < s[0][0] * 0, lambda s: (s[0] + s[0].sum(), s[1] + 1), (v, jnp.float32(-1)))


def until_nan(v: Any) -> Any:
    return loop(lambda s: ~jnp.isnan(s).any(), lambda s: jnp.sqrt(s - 1) + s.sum() * 0, v + 5)


def of_a_carried_truth(v: Any) -> Any:
    return loop(lambda s: s[1], lambda s: (s[0] * 0.9 - s[0].mean() * 0.01, jnp.max(s[0]) > 0.1), (v, True))


def written_on_the_way(v: Any) -> Any:
    def step(s: Any) -> Any:
        log = jax.lax.dynamic_update_slice(s[1], s[0].sum()[None], (s[2],))
        return s[0] * 1.2 + s[0].mean(), log, s[2] + 1

    return loop(lambda s: (s[0].sum() < 80) & (s[2] < 20), step, (v, jnp.zeros(20), 0))


def read_after(v: Any) -> Any:
    r = loop(lambda s: s[0].sum() < 80, lambda s: (s[0] * 1.2 + s[0].mean(), s[1] + 1), (v, 0))
    return r[0].sum() + r[1], r[1] * 2


def of_all_rows(m: Any) -> Any:
    """Rows that need each other go on until all are done."""
    return loop(lambda s: jnp.any(s.max(1) > 0.5), lambda s: s * 0.7 - s.mean(0) * 0.1, jnp.abs(m))


def tangent(v: Any) -> Any:
    def run(x: Any) -> Any:
        return loop(lambda s: (s[1] < 5) | (s[0].max() > 1), lambda s: (jnp.sin(s[0]) * s[0].mean(), s[1] + 1), (x, 0))

    return jax.jvp(lambda x: run(x)[0], (v,), (v * 2,))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conjugate gradients": (conjugate_gradients, (SPD, V)),
    "power iteration": (power_iteration, (SPD, V)),
    "alone": (alone, (V,)),
    "never": (never, (V,)),
    "once": (once, (V,)),
    "until NaN": (until_nan, (V,)),
    "of a carried truth": (of_a_carried_truth, (V,)),
    "written on the way": (written_on_the_way, (V,)),
    "read after": (read_after, (V,)),
    "of all rows": (of_all_rows, (M,)),
    "tangent": (tangent, (V,)),
}


@pytest.fixture
def in_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread alone would take the loops that are small enough for its registers, and XLA those of small steps."""
    monkeypatch.setattr(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {}))
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)


@pytest.mark.usefixtures("in_teams")
@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", CASES)
def test_equals_xla(name: str, device: str) -> None:
    """A step too many or too few, a test of the state before, a state that a last step has spoiled."""
    function, args = CASES[name]
    assert_equals_xla(function, args, device)


@pytest.mark.usefixtures("in_teams")
@pytest.mark.parametrize("name", CASES)
def test_is_one_kernel(name: str) -> None:
    function, args = CASES[name]
    plan = stitch_jit(function).plan(*args)
    assert not [b for b in plan.boundaries if b.op == "while"], plan.boundaries
    assert any("a loop of as many steps as it takes" in k.source for k in plan.kernels)


@pytest.mark.usefixtures("in_teams")
@pytest.mark.parametrize("name", ["conjugate gradients", "once", "of all rows"])
def test_as_cuda_runs_them(name: str) -> None:
    """A thread that reads whether to go on when another has written that for the step after."""
    function, args = CASES[name]
    made = stitch_capture(capture(function, args, devices.get("cpu")), forced.device("h200"))
    checked = check_function(made, [jnp.asarray(a) for a in args])
    assert not checked.errors, str(checked)
    for got, want in zip(checked.results, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=5e-4, atol=1e-5)
    for kernel in made.kernels:
        compile_ptx(kernel.source)


@pytest.mark.usefixtures("in_teams")
def test_in_float64() -> None:
    with jax.enable_x64(True):
        assert_equals_xla(conjugate_gradients, (SPD.astype(np.float64), V.astype(np.float64)), "cpu")


def test_says_why_not() -> None:
    """Not that its length is unknown, where that is not what keeps it from a kernel."""

    def far_too_large(m: Any) -> Any:
        return loop(lambda s: s[0, 0] < 100, lambda s: s @ s.T + 1, m)

    (why,) = {b.reason for b in stitch_jit(far_too_large).plan(jnp.ones((512, 512))).boundaries if b.op == "while"}
    assert "unknown length" not in why and "faster as XLA's kernels" in why
