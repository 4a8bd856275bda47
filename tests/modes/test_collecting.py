"""What a call does besides what ``jax.jit`` does must not be what has Python go through all its objects."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from jax_stitch.jit.tiers import programs
from jax_stitch.util.collecting import BETWEEN, put_off, seldom


@pytest.fixture(autouse=True)
def on_again() -> Iterator[None]:
    usual = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*usual)


def test_a_call_is_named_without_collecting(monkeypatch: pytest.MonkeyPatch, cache: object) -> None:
    """Catches: 80 ms, in a process that has imported much, of a first call that jax.jit does not have."""
    name, seen = programs.call_name, list[bool]()

    def named(*args: Any) -> Any:
        seen.append(gc.isenabled())
        return name(*args)

    monkeypatch.setattr(programs, "call_name", named)
    function = stitch_jit(lambda x: x * 2 + 1, mode="auto")
    function(jnp.ones(3))
    assert seen == [False] and gc.isenabled()


def test_it_goes_on_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), put_off():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_what_the_program_has_turned_off_stays_off() -> None:
    gc.disable()
    with put_off():
        pass
    assert not gc.isenabled()


def test_it_goes_on_when_the_last_of_several_threads_is_out() -> None:
    inside, out = threading.Event(), threading.Event()

    def other() -> None:
        with put_off():
            inside.set()
            out.wait(20)

    thread = threading.Thread(target=other)
    with put_off():
        thread.start()
        assert inside.wait(20)
    assert not gc.isenabled()
    out.set()
    thread.join(20)
    assert gc.isenabled()


def test_a_child_of_a_fork_collects() -> None:
    """Catches: a child that never collects, since no thread of it will end what one of its parent's has begun."""
    with put_off():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_it_begins_less_often_meanwhile() -> None:
    gc.set_threshold(700, 10, 10)
    with seldom():
        with seldom():
            assert gc.get_threshold() == (BETWEEN, 10, 10)
        assert gc.get_threshold() == (BETWEEN, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, 2 * BETWEEN])
def test_what_is_seldom_or_never_stays_so(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with seldom():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)


def test_what_the_program_sets_meanwhile_stays() -> None:
    gc.set_threshold(700, 10, 10)
    with seldom():
        gc.set_threshold(2000, 5, 5)
    assert gc.get_threshold() == (2000, 5, 5)


def test_a_child_of_a_fork_collects_as_often_as_before() -> None:
    gc.set_threshold(700, 10, 10)
    with seldom():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.get_threshold() == (700, 10, 10) else 1)
        assert os.waitpid(child, 0)[1] == 0
