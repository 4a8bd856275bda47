"""What ``autotune=`` takes, where it can be said, and what is said to a value that there is not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import UnknownAutotuneError, compare, stitch, stitch_jit
from jax_stitch.__main__ import WRONG_USE, main
from jax_stitch.util.options.autotune import Autotune, autotune_for
from tests.tune.conftest import Clock

X = jnp.asarray(np.random.default_rng(0).standard_normal((256, 512)), jnp.float32)


def centred(x: Any) -> Any:
    y = x - x.mean(1, keepdims=True)
    return y / jnp.sqrt((y * y).mean(1, keepdims=True))


def fresh() -> Any:
    """A function that JAX has not traced, nor we planned."""

    def fun(x: Any) -> Any:
        return centred(x)

    return fun


@pytest.mark.parametrize("value", ["fast", "top4", "TOP3", "", 1, 0, 3, 1.0, "True"])
def test_what_is_no_value_is_told_what_is(value: Any) -> None:
    for make in (stitch_jit, stitch):
        with pytest.raises(UnknownAutotuneError, match=r"autotune is .* none of True, False, 'top3'"):
            make(centred, autotune=value)
    with pytest.raises(UnknownAutotuneError, match="top3"):
        stitch_jit(fresh()).plan(X, autotune=value)
    with pytest.raises(UnknownAutotuneError, match="top3"):
        compare(centred, X, autotune=value)


def test_the_variable_is_for_functions_that_do_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, meaning in {"": Autotune.OFF, "0": Autotune.OFF, "1": Autotune.ALL, "top3": Autotune.TOP3}.items():
        monkeypatch.setenv("JAX_STITCH_AUTOTUNE", text)
        assert autotune_for(None) is meaning
        assert autotune_for(True) is Autotune.ALL and autotune_for(False) is Autotune.OFF
    monkeypatch.setenv("JAX_STITCH_AUTOTUNE", "yes")
    with pytest.raises(UnknownAutotuneError, match=r"\$JAX_STITCH_AUTOTUNE is 'yes'.* none of '1', '0', 'top3'"):
        stitch_jit(fresh())


def test_the_variable_is_read_when_a_function_is_decorated(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_AUTOTUNE", "top3")
    tuned, not_tuned = stitch_jit(fresh()), stitch_jit(fresh(), autotune=False)
    monkeypatch.delenv("JAX_STITCH_AUTOTUNE")
    not_tuned(X)
    assert not clock.races
    tuned(X)
    assert clock.races


def test_nothing_is_measured_unasked(clock: Clock) -> None:
    stitch_jit(fresh())(X)
    assert stitch_jit(fresh()).plan(X).kernels[0].measured is None and not clock.races


def test_the_choice_bounds_the_candidates(clock: Clock) -> None:
    for choice, most in (("top3", 3), (True, 12)):
        stitch_jit(fresh()).plan(X, autotune=choice)
        units = [r for r in clock.races if r.seconds < 2]
        assert units and max(len(r.keys) for r in units) == 1 + most
        clock.races.clear()


def test_plan_takes_another_value_than_the_function(clock: Clock) -> None:
    function = stitch_jit(fresh(), autotune=True)
    assert function.plan(X, autotune=False).kernels[0].measured is None and not clock.races
    assert function.plan(X).kernels[0].measured == (0.5, 1.0) and clock.races
    assert "measured  XLA's own" in str(function.plan(X))


def test_compare_keeps_what_the_function_was_given(clock: Clock) -> None:
    steps: list[str] = []
    function = stitch_jit(fresh(), autotune="top3")
    compare(function, X, rounds=3, seconds=0.1, step=steps.append)
    assert clock.races and any("measuring stitch_0" in step for step in steps)
    assert any("measuring the whole function" in step for step in steps)


def test_the_commands_take_it(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "tests.tune.test_choice:centred", "--args", "f32[256,512]"]
    assert main([*plan, "--autotune", "top3"]) == 0
    assert clock.races and "XLA's own" in capsys.readouterr().out
    clock.races.clear()
    assert main(plan) == 0 and not clock.races
    capsys.readouterr()
    assert main([*plan, "--autotune", "fast"]) == WRONG_USE
    assert "'top3'" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_not_measured(clock: Clock) -> None:
    plan = stitch_jit(fresh(), autotune=True).plan(X, device="h200")
    assert not clock.races and plan.kernels
    assert "autotune: h200 is not attached" in str(plan)
