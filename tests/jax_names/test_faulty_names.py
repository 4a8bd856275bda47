"""Every name of the table, missing or changed, is noticed, and functions are then plain ``jax.jit``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import StitchWarning, UnstitchableError
from jax_stitch.jit.other_jax import canary, choice, later, plain
from jax_stitch.util import jax_names
from jax_stitch.util.jax_names import EVERYTHING, found
from jax_stitch.util.jax_names.table import NAMES
from tests.other_jax.faulty_jax import MISSING, OTHER, changed_module


@pytest.fixture
def looked_up_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What is known of the names is forgotten before and after."""
    monkeypatch.setattr(plain, "_warned", False)
    found._all_faults.cache_clear()
    yield monkeypatch
    found._all_faults.cache_clear()


@pytest.mark.parametrize("fault", [MISSING, OTHER])
def test_each_name_is_missed(fault: str, looked_up_anew: pytest.MonkeyPatch) -> None:
    """A form that everything fits lets a changed name through, to raise where it is used."""
    real = found.module
    for entry in NAMES:
        looked_up_anew.setattr(found, "module", changed_module(entry.name, fault, real))
        found._all_faults.cache_clear()
        assert (entry.full_name, entry.lost) in [(f.name, f.lost) for f in jax_names.faults(everything_lost())]
        assert bool(jax_names.obstacle()) == any(f.lost == EVERYTHING for f in jax_names.faults(everything_lost()))
        assert entry.full_name in str(canary.report()["faulty_names"])


def everything_lost() -> tuple[str, ...]:
    return tuple({entry.lost for entry in NAMES})


def test_functions_are_plain_then(looked_up_anew: pytest.MonkeyPatch) -> None:
    """A function without the methods of a stitched one, or a warning for each of them, would break or flood a user."""

    def fun(x: Any) -> Any:
        return jnp.sin(x) + 1

    looked_up_anew.setattr(found, "module", changed_module("ad.Zero", MISSING, found.module))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        functions = [choice.public("stitch_jit")(fun), choice.public("stitch")(fun), choice.public("stitch_jit")()(fun)]
    (warning,) = caught
    assert (
        warning.category is StitchWarning and warning.filename == __file__ and jax.__version__ in str(warning.message)
    )
    assert all(f(1.0) == fun(1.0) for f in functions)
    function = functions[0]
    assert function.wait() and "ad.Zero is missing" in function.status().reason and function.__wrapped__ is fun
    assert function.lower(1.0).compile()(1.0) == fun(1.0)
    for name in ("compare", "plan_hlo", "stitch_hlo"):
        with pytest.raises(plain.UnusableJax, match=rf"{name} cannot be had with jax .*ad\.Zero is missing"):
            choice.public(name)(fun)
    with pytest.raises(plain.UnusableJax, match="the plan of fun"):
        function.plan(1.0)
    with pytest.raises(UnstitchableError, match=r"ad\.Zero is missing"):
        choice.public("stitch_jit")(fun, strict=True)(1.0)


def test_a_users_mistakes_are_told_all_the_same(looked_up_anew: pytest.MonkeyPatch) -> None:
    """On such a JAX a misspelt option would be taken for one, and pass in silence."""
    looked_up_anew.setattr(found, "module", changed_module("ad.Zero", MISSING, found.module))
    for options in ({"mode": "soon"}, {"planner": "best"}, {"strict": "yes"}, {"autotune": "top4"}):
        with pytest.raises(ValueError, match=r"is none of|no planner"):
            later.stitch_jit(lambda x: x, **options)
    with pytest.raises(TypeError, match="static_argnum"):
        later.stitch_jit(lambda x: x, static_argnum=0)
    with pytest.raises(TypeError):
        later.stitch_jit(3)


def test_a_function_for_later_is_like_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a new JAX is tried, a method of a class, or a copy by name, has to work as with Python's own functions."""
    monkeypatch.setattr(choice.jax_names.found, "here", lambda: jax_names.Versions("99.0", "99.0"))
    monkeypatch.setattr(canary, "here", lambda: jax_names.Versions("99.0", "99.0"))
    monkeypatch.setattr(canary, "_verdict", None)
    monkeypatch.setattr(canary, "_read", lambda: None)
    monkeypatch.setattr(canary, "_found", lambda: canary.Verdict(""))

    class Scaled:
        factor = 2

        @later.stitch_jit(static_argnums=0, mode="now")
        def times(self, x: Any) -> Any:
            return self.factor * jnp.sin(x)

    assert type(Scaled.times) is later.Later
    assert Scaled.times.__name__ == "times" and Scaled.times.jit_options == {"static_argnums": 0}
    assert not hasattr(Scaled.times, "__jax_array__")
    assert Scaled().times(1.0) == 2 * jnp.sin(1.0)
    assert Scaled.times.status().mode == "now"


def test_a_canary_that_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in the trial itself would raise out of the user's call."""
    monkeypatch.setattr(canary, "here", lambda: jax_names.Versions("99.0", "99.0"))
    monkeypatch.setattr(canary, "_verdict", None)
    monkeypatch.setattr(canary, "_read", lambda: None)
    monkeypatch.setattr(canary.store, "write", lambda *_: None)

    def failing() -> canary.Verdict:
        raise RuntimeError("of any kind")

    monkeypatch.setattr(canary, "_in_all_ways", failing)
    assert canary.refusal() == "its trial failed: RuntimeError: of any kind"
