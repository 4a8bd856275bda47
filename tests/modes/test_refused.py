"""A stitched program that fails where ``jax.jit``'s does not, in ``mode="auto"``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import StitchWarning
from tests.modes.conftest import LONG, Planner, is_marked
from tests.modes.test_auto import auto, call_until_decided, double, state

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def own_cache(cache: Path) -> None:
    """Verdicts of other tests are none of this one's."""


def raises(x: Any) -> Any:
    def refuse(_: Any) -> Any:
        raise RuntimeError("the device does not take this kernel")

    return jax.pure_callback(refuse, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_a_program_that_the_device_refuses_is_left(planner: Planner) -> None:
    """On the first GPU a kernel was refused when it was loaded: the user's call raised, though jax.jit's would not."""
    planner.instead = raises
    function = auto(double)
    assert not is_marked(function(X), X * 2) and function.wait(LONG) and state(function) == "trying"
    with pytest.warns(StitchWarning, match=r"the stitched program failed where jax\.jit's does not"):
        assert call_until_decided(function, X) and not is_marked(function(X), X * 2)
    assert state(function) == "plain" and "the stitched program failed: INTERNAL" in str(function.status())
    again = auto(double)  # What failed once is tried again in a later process.
    again(X)
    assert again.wait(LONG) and state(again) == "trying"


@pytest.mark.parametrize("how", ["with an effect", "donated", "strict"])
def test_what_cannot_be_repeated_raises(planner: Planner, how: str) -> None:
    """An effect would be seen twice; donated arguments are gone; strict asks for it."""
    planner.instead = raises
    options = {"donated": {"donate_argnums": 0}, "strict": {"strict": True}}.get(how, {})

    def shown(x: Any) -> Any:
        if how == "with an effect":
            jax.debug.callback(lambda x: None, x)
        return x * 2

    function = auto(shown, **options)
    function(X + 0)
    assert function.wait(LONG)
    with pytest.raises(Exception, match=r"does not take this kernel|failed where"):
        for _ in range(9):
            function(X + 0)
