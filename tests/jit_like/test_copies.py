"""Stitched functions copied and pickled, by themselves and in what holds them."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit


@stitch_jit
def doubled(x: Any) -> Any:
    return x * 2


@functools.partial(stitch_jit, mode="now")
def doubled_now(x: Any) -> Any:
    return x * 2


@jax.jit
def plain(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("function", [doubled, doubled_now])
def test_they_are_themselves(function: Any) -> None:
    """Catches models and configurations that hold one and can no more be copied, or sent to another process."""
    held = {"activation": function, "sizes": [1, 2]}
    function(jnp.ones(3))
    for copied in (copy.deepcopy(held), copy.copy(held), pickle.loads(pickle.dumps(held))):
        assert copied["activation"] is function and copied["sizes"] == [1, 2]
    assert copy.copy(function) is function


def test_what_has_no_name_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(stitch_jit(lambda x: x))


def test_functions_of_jax_are_copied_as_before() -> None:
    """Catches what is said of our functions applied to all of that type."""
    copied = copy.deepcopy({"f": plain})["f"]
    assert copied is not plain
    assert copied(jnp.ones(3)).tolist() == [2, 2, 2]
