"""Which mode a function is in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.util.options.modes import MODE_VARIABLE
from tests.modes.conftest import LONG, Planner, is_marked

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


def double(x: Any) -> Any:
    return x * 2


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODE_VARIABLE, raising=False)


def test_a_wrong_mode_is_told_the_modes() -> None:
    for make in (lambda: stitch_jit(double, mode="asink"), lambda: stitch_jit(mode="")):
        with pytest.raises(ValueError, match=r"mode is '.*', which is none of 'auto', 'now', 'async', 'off'"):
            make()


@pytest.mark.parametrize("make", [stitch, stitch_jit])
def test_a_wrong_variable_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "1")
    with pytest.raises(ValueError, match=r"\$JAX_STITCH_MODE is '1', which is none of 'auto', 'now', 'async', 'off'"):
        make(double)


def test_now_waits(planner: Planner) -> None:
    function = stitch_jit(double, mode="now")
    assert is_marked(function(X), X * 2)
    assert function.wait()


def test_auto_is_the_default(planner: Planner) -> None:
    function = stitch_jit(double)
    assert function.status().mode == "auto"
    planner.open.clear()
    assert not is_marked(function(X), X * 2)
    planner.open.set()
    assert function.wait(LONG)


@pytest.mark.parametrize(
    ("variable", "mode", "stitched"),
    [
        ("now", None, True),
        ("", "now", True),
        ("auto", "now", True),
        ("now", "off", False),
        ("off", None, False),
        ("off", "now", False),
        ("off", "async", False),
        (None, "off", False),
        ("async", "now", True),
    ],
)
def test_the_variable(
    variable: str | None, mode: str | None, stitched: bool, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(MODE_VARIABLE, variable)
    function = stitch_jit(double, mode=mode)
    assert is_marked(function(X), X * 2) is stitched
    assert function.wait(0)
    assert len(planner.threads) == stitched


def test_the_variable_makes_functions_asynchronous(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "async")
    planner.open.clear()
    function = stitch_jit(double)
    assert not is_marked(function(X), X * 2)
    planner.open.set()
    assert function.wait(LONG)
    assert is_marked(function(X), X * 2)


def test_off_turns_stitch_off_too(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "off")
    assert stitch(double) is double
    monkeypatch.delenv(MODE_VARIABLE)
    assert is_marked(jax.jit(stitch(double))(X), X * 2)


@pytest.mark.parametrize("mode", ["auto", "now", "async", "off"])
def test_every_mode_has_every_method(mode: str) -> None:
    """With the options of ``jax.jit``, with and without parentheses, before and after calls."""

    def scaled(x: Any, *, factor: int = 2) -> Any:
        """Scales."""
        return x * factor

    for function in (
        stitch_jit(scaled, mode=mode, static_argnames="factor"),
        stitch_jit(mode=mode, static_argnames="factor")(scaled),
    ):
        assert (function.__name__, function.__doc__, function.__wrapped__) == ("scaled", "Scales.", scaled)
        assert function.jit_options == {"static_argnames": "factor"}
        for _ in range(2):
            assert function.eval_shape(X, factor=3) == jax.ShapeDtypeStruct((3, 4), jnp.float32)
            assert function.lower(X, factor=3).compile()(X)[0, 1] == 3 * X[0, 1]
            assert function.trace(X).fun_name == "scaled"
            assert function.plan(X).launches == 1
            assert function(X, factor=3)[0, 1] == 3 * X[0, 1]
            assert function.wait(LONG)
        function.clear_cache()
        assert function(X)[0, 1] == 2 * X[0, 1]
