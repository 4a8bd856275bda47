"""Lines about work that takes long: one when it does, one when it is done, none for quick work."""

from __future__ import annotations

import functools
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.util import notices
from jax_stitch.util.notices import Work
from tests.modes.conftest import LONG, Planner

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


class Error(io.StringIO):
    """A standard error."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def comes(self, text: str) -> bool:
        return _until(lambda: text in self.getvalue())


def _until(holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold within 20 s."""
    end = time.monotonic() + 20.0
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("JAX_STITCH_LOG", raising=False)
    monkeypatch.setattr(notices, "PATIENCE", 0.05)
    monkeypatch.setattr(notices, "_STEP", 0.01)
    yield
    notices._going_on.clear()
    end = time.monotonic() + LONG
    while notices._thread is not None and time.monotonic() < end:
        time.sleep(0.01)


@pytest.fixture(params=[False, True], ids=["file", "terminal"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Error]:
    """Puts a standard error in place; to be called in the test, before which pytest puts its own there."""

    def put() -> Error:
        found = Error(request.param)
        monkeypatch.setattr(sys, "stderr", found)
        return found

    return put


def test_what_takes_long_is_told_while_it_does(start: Callable[[], Error]) -> None:
    error = start()
    work = Work("update", "calls run as jax.jit meanwhile")
    notices.begin(work)
    assert error.comes("stitching update: planning; calls run as jax.jit meanwhile")
    work.count(40, 95)
    assert not error.terminal or error.comes("stitching update: 40 of 95 kernels compiled; calls run as jax.jit")
    time.sleep(0.05)
    notices.end(work)
    notices.tell_result(work, "12 kernels in place of 70 launches, 1.4 times jax.jit")
    assert error.getvalue().endswith("update: 12 kernels in place of 70 launches, 1.4 times jax.jit\n")
    if not error.terminal:
        assert len(error.getvalue().splitlines()) == 2 and "\r" not in error.getvalue()


def test_quick_work_is_not_spoken_of(start: Callable[[], Error], monkeypatch: pytest.MonkeyPatch) -> None:
    error = start()
    monkeypatch.setattr(notices, "PATIENCE", 60.0)
    work = Work("quick", "")
    notices.begin(work)
    time.sleep(0.05)
    notices.end(work)
    notices.tell_result(work, "done")
    assert error.getvalue() == ""


def test_it_can_be_turned_off(start: Callable[[], Error], monkeypatch: pytest.MonkeyPatch) -> None:
    error = start()
    monkeypatch.setenv("JAX_STITCH_LOG", "off")
    work = Work("update", "")
    notices.begin(work)
    time.sleep(0.1)
    notices.end(work)
    assert error.getvalue() == ""


def test_a_closed_standard_error_is_no_trouble(start: Callable[[], Error], monkeypatch: pytest.MonkeyPatch) -> None:
    for closed in (None, io.StringIO()):
        if closed is not None:
            closed.close()
        monkeypatch.setattr(sys, "stderr", closed)
        work = Work("update", "")
        notices.begin(work)
        _until(functools.partial(getattr, work, "shown"))  # The thread that watches meets it too, and lives on.
        notices.end(work)
        notices.tell_result(work, "done")
    error = start()
    work = Work("next", "")
    notices.begin(work)
    assert error.comes("stitching next: planning")
    notices.end(work)


def test_a_function_says_what_it_is_at(start: Callable[[], Error], planner: Planner, cache: object) -> None:
    """Made in the background, and in a call that waits."""
    error = start()
    planner.open.clear()
    function = stitch_jit(lambda x: x * 2, mode="auto")
    function(X)
    assert error.comes("stitching <lambda>(f32[3,4]): planning; calls run as jax.jit meanwhile")
    planner.open.set()
    assert function.wait(LONG)
    planner.open.clear()


def test_a_call_that_waits_says_so(start: Callable[[], Error], monkeypatch: pytest.MonkeyPatch) -> None:
    error = start()
    from jax_stitch.jit import lowering

    plan = lowering._plan
    seen = threading.Event()

    def slowly(*args: Any) -> Any:
        seen.set()
        error.comes("its call waits for that")
        return plan(*args)

    monkeypatch.setattr(lowering, "_plan", slowly)
    function = stitch_jit(lambda x: jax.nn.softmax(x) * 2, mode="now")
    np.testing.assert_allclose(function(X), jax.nn.softmax(X) * 2, rtol=1e-6)
    assert seen.is_set() and "stitching <lambda>(f32[3,4]): planning; its call waits for that" in error.getvalue()
    assert "<lambda>(f32[3,4]): stitched in " in error.getvalue()
