"""``mode="auto"``: plain at first and at once, then both in turn, then what is faster."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import StitchWarning, stitch_jit
from jax_stitch.jit.programs.verdicts import Verdict
from jax_stitch.jit.tiers.program import Program, State
from jax_stitch.util.options.template_error import TemplateError
from tests.modes.conftest import LONG, Compilations, Planner, is_marked, slowly
from tests.side_by_side import counted

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)
SLOW = 0.01
auto = functools.partial(stitch_jit, mode="auto")


@pytest.fixture(autouse=True)
def own_cache(cache: Path) -> None:
    """Verdicts of other tests are none of this one's."""


def double(x: Any, factor: Any = 2) -> Any:
    return x * factor


def slow_double(x: Any) -> Any:
    return slowly(x * 2, SLOW)


def faster(planner: Planner) -> Any:
    """A function whose stitched program is faster."""
    planner.instead = lambda x: x * 2
    return auto(slow_double)


def slower(planner: Planner) -> Any:
    planner.seconds = SLOW
    return auto(double)


def call_until_decided(function: Any, *args: Any) -> list[bool]:
    """Which of the calls ran the stitched program."""
    found = []
    end = time.monotonic() + LONG
    while not function.status().decided:
        assert time.monotonic() < end
        found.append(is_marked(function(*args), args[0] * 2))
    return found


def state(function: Any) -> str:
    (program,) = function.status().programs
    return str(program.state)


def test_from_the_first_call_to_the_verdict(planner: Planner) -> None:
    run, counter = counted(slow_double)
    planner.instead = lambda x: x * 2
    function = auto(run)
    assert function.status().programs == () and function.wait(0)
    planner.open.clear()
    for _ in range(3):
        assert not is_marked(function(X), X * 2)
        assert not function.wait(0) and state(function) == "making"
    planner.open.set()
    assert function.wait(LONG) and state(function) == "trying"
    ran = call_until_decided(function, X)
    assert 0 < sum(ran) < len(ran) <= 20
    assert state(function) == "stitched"
    assert all(is_marked(function(X), X * 2) for _ in range(5))
    (program,) = function.status().programs
    assert program.speedup is not None and program.speedup > 2 and "times jax.jit" in program.detail
    assert counter.runs == 1 and planner.threads == ["jax-stitch-background"]


def test_a_slower_program_does_not_stay(planner: Planner) -> None:
    function = slower(planner)
    function(X)
    assert function.wait(LONG)
    assert any(call_until_decided(function, X)) and state(function) == "plain"
    assert not any(is_marked(function(X), X * 2) for _ in range(5))
    assert "as the stitched program is 0." in str(function.status())


@pytest.mark.parametrize(("make", "stitched"), [(faster, True), (slower, False)])
def test_the_verdict_is_kept(make: Callable[[Planner], Any], stitched: bool, planner: Planner) -> None:
    """Another function of the same program starts with it; nothing is measured, and nothing made that stays unused."""
    first = make(planner)
    first(X)
    assert first.wait(LONG)
    call_until_decided(first, X)
    planner.threads.clear()
    second = make(planner)
    second(X)
    assert second.wait(LONG) and second.status().decided
    assert is_marked(second(X), X * 2) is stitched
    assert len(planner.threads) == stitched, "a program that is not on disk is made again, if it is wanted"
    assert second.status().programs[0].speedup == first.status().programs[0].speedup


def test_another_program_has_another_verdict(planner: Planner) -> None:
    first = slower(planner)
    first(X)
    assert first.wait(LONG)
    call_until_decided(first, X)
    for other, x in ((auto(lambda x: x * 3), X), (auto(double), X[1:]), (auto(double, donate_argnums=0), X + 0)):
        other(x)
        assert other.wait(LONG) and state(other) == "trying"


def test_donated_arguments_are_given_to_one(planner: Planner) -> None:
    planner.instead = lambda x: x * 2
    function = auto(slow_double, donate_argnums=0)
    seen = set()
    for n in range(60):
        given = X + n
        seen.add(is_marked(function(given), (np.asarray(X) + n) * 2))
        assert given.is_deleted()
        if n == 0:
            assert function.wait(LONG)
    assert seen == {True, False} and state(function) == "stitched"


def test_static_values_and_types_are_programs_of_their_own(planner: Planner) -> None:
    """Some stitched, some not, in one function: each call runs its own, and keeps its fast way."""
    planner.seconds = SLOW
    function = auto(double, static_argnums=1)
    function(X, 2)
    assert function.wait(LONG)
    call_until_decided(function, X, 2)
    planner.seconds, planner.instead = 0.0, lambda x: x * 3

    @functools.partial(auto, static_argnums=1)
    def mixed(x: Any, factor: int) -> Any:
        return x * 2 if factor == 2 else slowly(x * factor, SLOW)

    mixed(X, 3)
    assert mixed.wait(LONG)
    end = time.monotonic() + LONG
    while not mixed.status().decided:
        mixed(X, 3)
        assert time.monotonic() < end
    planner.instead, planner.seconds = None, SLOW
    assert not is_marked(mixed(X, 2), X * 2)
    assert mixed.wait(LONG)
    while not mixed.status().decided:
        mixed(X, 2)
        assert time.monotonic() < end
    for _ in range(3):
        assert is_marked(mixed(X, 3), X * 3) and not is_marked(mixed(X, 2), X * 2)
    assert sorted(p.state for p in mixed.status().programs) == ["plain", "stitched"]


def test_a_call_while_it_is_made_is_no_call_of_python(planner: Planner) -> None:
    """It is JAX's fast path in C++."""
    import sys

    planner.open.clear()
    function = auto(double)
    function(X)
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function(X)
    finally:
        sys.setprofile(None)
    assert not names


def test_new_types_after_a_failed_call(planner: Planner, compilations: Compilations) -> None:
    """The trace is there when the next call comes, which must all the same be known to be new."""
    function = auto(double)
    function(X)
    assert function.wait(LONG)
    planner.open.clear()
    wide = jnp.ones((2, 3))

    def fail(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            raise KeyboardInterrupt

    for n in range(2):
        jax.monitoring.register_event_duration_secs_listener(fail)
        try:
            with pytest.raises(KeyboardInterrupt):
                function(wide[n:])
        finally:
            jax.monitoring.unregister_event_duration_listener(fail)
        assert not is_marked(function(wide[n:]), wide[n:] * 2)
    planner.open.set()
    assert function.wait(LONG)
    assert len(function.status().programs) == 3


def test_an_interrupt_in_the_first_call(planner: Planner) -> None:
    """Comes through; the next call is the first again."""

    def fail(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            raise KeyboardInterrupt

    function = auto(double)
    jax.monitoring.register_event_duration_secs_listener(fail)
    try:
        with pytest.raises(KeyboardInterrupt):
            function(X)
    finally:
        jax.monitoring.unregister_event_duration_listener(fail)
    assert function.status().programs == () and not planner.threads
    assert not is_marked(function(X), X * 2)
    assert function.wait(LONG) and state(function) == "trying"


def test_an_exception_while_both_are_tried(planner: Planner) -> None:
    """Neither the plan nor the next call suffers."""
    function = faster(planner)
    function(X)
    assert function.wait(LONG)
    with pytest.raises(TypeError):
        function(X, X)
    call_until_decided(function, X)
    assert state(function) == "stitched"


def test_under_vmap_and_grad(planner: Planner) -> None:
    """No later call could swap anything there: what is predicted is taken; calls by themselves go their own way."""
    function = auto(double)
    assert is_marked(jax.vmap(function)(X), X * 2)
    assert is_marked(jax.jit(lambda x: function(x))(X), X * 2)
    value, slope = jax.value_and_grad(lambda x: function(x).sum())(1.0)
    assert value > 900 and slope > 900
    assert not is_marked(function(X), X * 2)
    assert is_marked(jax.vmap(function)(X[:2]), X[:2] * 2)


@pytest.mark.parametrize("failure", [RuntimeError("a defect"), OSError(28, "No space left on device")])
def test_failures_are_one_warning_and_not_kept(failure: Exception, planner: Planner) -> None:
    planner.failure = failure
    function = auto(double)
    with pytest.warns(StitchWarning, match="double runs as plain jax.jit") as warnings:
        function(X)
        assert function.wait(LONG)
        assert not is_marked(function(X), X * 2)
    assert len(warnings) == 1 and state(function) == "plain"
    planner.failure = None
    again = auto(double)
    again(X)
    assert again.wait(LONG) and state(again) == "trying"


@pytest.mark.filterwarnings("error")
def test_strict_functions_raise(planner: Planner) -> None:
    planner.failure = RuntimeError("a defect")
    function = auto(double, strict=True)
    assert not is_marked(function(X), X * 2)
    for call in (lambda: function.wait(LONG), lambda: function(X), lambda: function(X)):
        with pytest.raises(RuntimeError, match="a defect"):
            call()
    assert state(function) == "refused"


def test_templates_that_cannot_be_had_are_told(planner: Planner) -> None:
    """As in ``mode="now"``: what was asked for is not done otherwise with a warning."""
    planner.failure = TemplateError("there is no such part")
    function = auto(double, templates="nothing[GRID]")
    function(X)
    with pytest.raises(TemplateError, match="no such part"):
        function.wait(LONG)
    with pytest.raises(TemplateError, match="no such part"):
        function(X)


def test_several_threads(planner: Planner) -> None:
    """While one measures the others run plainly; results are right all along; there is one verdict."""
    planner.instead = lambda x: x * 2
    function = auto(slow_double)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(60):
                is_marked(function(X), X * 2)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and function.wait(LONG)
    call_until_decided(function, X)
    assert len(planner.threads) == 1 and len(function.status().programs) == 1


def test_a_status_is_a_value(planner: Planner) -> None:
    function = auto(double)
    function(X)
    found = function.status()
    assert found == found and hash(found) is not None
    with pytest.raises(AttributeError):
        found.mode = "now"
    assert "double (mode 'auto')\n  (f32[3,4]): runs jax.jit" in str(found)
    assert str(auto(double).status()) == "double (mode 'auto'): not called yet"
    assert str(stitch_jit(double, mode="now").status()) == "double (mode 'now'): not called yet"


def test_states_follow_each_other_in_one_order_only() -> None:
    from jax_stitch.util.notices import Work

    program = Program("", Work("f", ""))
    yes = Verdict(True, "faster")
    assert program.move(State.TRYING) and not program.move(State.MAKING)
    assert program.move(State.STITCHED, yes)
    for later in State:
        assert not program.move(later) and program.verdict is yes


def test_with_nans_looked_for(planner: Planner) -> None:
    """Then nothing is stitched, which is no verdict on the program."""
    function = auto(double)
    with jax.debug_nans(True):
        assert not is_marked(function(X), X * 2)
        assert function.wait(LONG) and state(function) == "plain"
    other = auto(double)
    other(X)
    assert other.wait(LONG) and state(other) == "trying"


def test_clear_cache(planner: Planner) -> None:
    function = auto(double)
    function(X)
    assert function.wait(LONG)
    function.clear_cache()
    assert function.status().programs == ()
    assert not is_marked(function(X), X * 2)
    assert function.wait(LONG) and state(function) == "trying"


@pytest.mark.parametrize(
    ("mode", "rounds"),
    [("auto", 5), ("async", 5), ("now", 5), ("off", 5), pytest.param("auto", 40, marks=pytest.mark.slow)],
)
def test_what_wait_says_is_what_the_status_says(planner: Planner, mode: str, rounds: int) -> None:
    """``wait()`` returned True, and ``settled`` right after it False, as both programs had still to be tried."""
    for k in range(rounds):
        function = stitch_jit(lambda x, k=k: x * 2 + k, mode=mode)
        for size in (3, 4):
            function(np.ones(size, np.float32))
        while not function.wait(0):
            time.sleep(0.0001)
        assert function.status().settled, function.status()
        assert function.status().decided or mode == "auto"


def test_tried_programs_are_settled_and_not_decided(planner: Planner) -> None:
    function = faster(planner)
    function(X)
    assert function.wait(LONG) and state(function) == "trying"
    assert function.status().settled and not function.status().decided
    call_until_decided(function, X)
    assert function.status().settled and function.status().decided
