"""A thread that computes in Python beside others: it lets them go on, and ends where it is told to."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from jax_stitch.backend.launch import native
from jax_stitch.jit.rebuilt import giving_way
from jax_stitch.jit.tiers import identity

HOOKS = ["compiled", "python"]


@pytest.fixture
def hook(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the compiled library, or by a function of Python where there is none."""
    if request.param == "python":
        monkeypatch.setattr(native, "at_hand", lambda: None)
        monkeypatch.setattr(giving_way, "_library", None)
    else:
        native.library()
    return request.param


@pytest.fixture
def selfish() -> Iterator[None]:
    """No thread is made to give the interpreter away."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(before)


def nothing() -> None:
    pass


@pytest.mark.parametrize("hook", HOOKS, indirect=True)
def test_others_get_the_interpreter(hook: str, selfish: None) -> None:
    started, seen = threading.Event(), threading.Event()
    calls = []

    def work() -> None:
        with giving_way.giving_way(lambda frame: None):
            started.set()
            calls.append(next((n for n in range(20_000_000) if nothing() or seen.is_set()), None))

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    seen.set()
    thread.join()
    assert calls[0] is not None
    assert (giving_way._library is None) == (hook == "python")


def test_a_library_that_cannot_be_had_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ended with it, and what it had to do was waited for in vain."""

    def failing() -> None:
        raise FileNotFoundError("no headers")

    monkeypatch.setattr(native, "at_hand", failing)
    monkeypatch.setattr(giving_way, "_library", None)
    with giving_way.giving_way(lambda frame: None):
        assert sys.getprofile() is not None


@pytest.mark.parametrize("hook", HOOKS, indirect=True)
def test_only_this_thread_and_no_longer_than_it_lasts(hook: str) -> None:
    with giving_way.giving_way(lambda frame: None):
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(sys.getprofile()))
        thread.start()
        thread.join()
    assert elsewhere == [None] and sys.getprofile() is None


STOP = """
import sys
from jax_stitch.backend.launch import native
from jax_stitch.jit.rebuilt import giving_way
from jax_stitch.jit.tiers import identity
if sys.argv[1] == "python":
    native.at_hand = lambda: None
else:
    native.library()

class Ended(BaseException):
    pass

def ours():
    pass

def others():
    passed.append(1)

def stopped(frame):
    if frame.f_code.co_name == "ours":
        raise Ended

passed = []
try:
    with giving_way.giving_way(stopped):
        ours()
        giving_way.stop()
        others()
        ours()
        print("not stopped")
except Ended:
    print("stopped", len(passed))
"""


@pytest.mark.parametrize("kind", HOOKS)
def test_it_ends_where_it_may(kind: str) -> None:
    """A function that must not be left halfway comes to its end; the next that may be is not entered."""
    run = subprocess.run([sys.executable, "-c", STOP, kind], capture_output=True, text=True, check=True)
    assert run.stdout == "stopped 1\n", run.stderr


def test_a_library_that_cannot_be_had_is_no_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an installation without XLA's headers in which nothing can be decorated any more."""

    def failing() -> None:
        raise FileNotFoundError("no headers")

    monkeypatch.setattr(native, "at_hand", failing)
    identity.look_around()
