"""``mode="async"``: when which program runs."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import StitchWarning, stitch_jit
from jax_stitch.backend.compile import CompilerMissing
from jax_stitch.jit.rebuilt import background
from tests.modes.conftest import LONG, Compilations, Planner, is_marked
from tests.side_by_side import counted, same

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


def double(x: Any, factor: Any = 2) -> Any:
    return x * factor


def test_the_swap(planner: Planner) -> None:
    """Plain until the program is there, however many calls; then stitched; planned and traced once, elsewhere."""
    run, counter = counted(double)
    function = stitch_jit(run, mode="async")
    planner.open.clear()
    for _ in range(3):
        assert not is_marked(function(X), X * 2)
        assert not function.wait(0)
    planner.open.set()
    assert function.wait(LONG)
    for _ in range(3):
        assert is_marked(function(X), X * 2)
    assert planner.threads == ["jax-stitch-background"]
    assert counter.runs == 1


def test_each_signature_is_swapped_by_itself(planner: Planner) -> None:
    """Types, static values and keywords: each new one is plain at first, and the others stay stitched meanwhile."""
    function = stitch_jit(double, mode="async", static_argnums=1)
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = [
        ((X,), {}, X * 2),
        ((X, 3), {}, X * 3),
        ((X,), {"factor": 4}, X * 4),
        ((X.astype(jnp.bfloat16),), {}, X.astype(jnp.bfloat16) * 2),
        ((X[0],), {}, X[0] * 2),
        ((np.asarray(X[1:]),), {}, X[1:] * 2),
    ]
    for n, (args, kwargs, expected) in enumerate(calls):
        planner.open.clear()
        assert not is_marked(function(*args, **kwargs), jax.jit(lambda x=expected: x)())
        for args_before, kwargs_before, expected_before in calls[:n]:
            found = function(*args_before, **kwargs_before)
            assert abs(np.asarray(found, np.float64) - np.asarray(expected_before, np.float64)).min() > 900
        planner.open.set()
        assert function.wait(LONG)
    assert len(planner.threads) == len(calls)


@pytest.mark.parametrize("signatures", [1, 2])
def test_a_settled_call_is_no_call_of_python(signatures: int, planner: Planner) -> None:
    """It is JAX's fast path in C++, also for arguments that came when others were stitched already."""
    function = stitch_jit(double, mode="async")
    arguments = [X, X[0]][:signatures]
    for x in arguments:
        function(x)
        assert function.wait(LONG)
    for x in arguments:
        function(x)
    for x in arguments:
        assert _python_calls(lambda x=x: function(x)) == ["<lambda>"]


def test_a_settled_function_is_staged_under_a_trace(planner: Planner) -> None:
    """Catches the program that its calls run executed while a caller is traced, as its arguments are no tracers."""
    function = stitch_jit(double, mode="async")
    function(X)
    assert function.wait(LONG)
    function(X)
    assert "stitched" in str(jax.make_jaxpr(lambda y: function(X) + y)(X))
    with jax.disable_jit():
        assert not is_marked(function(X), X * 2)
    assert is_marked(function(X), X * 2)


def _python_calls(call: Callable[[], Any]) -> list[str]:
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


MESH = jax.make_mesh((1,), ("i",), devices=jax.devices()[:1])
ROWS = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("i"))
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "uncommitted": (X, {}),
    "numpy": (np.asarray(X), {}),
    "Python scalar": (1.5, {}),
    "committed": (jax.device_put(X, jax.devices()[0]), {}),
    "sharded": (jax.device_put(X, ROWS), {}),
    "in_shardings": (X, {"in_shardings": ROWS, "out_shardings": ROWS}),
    "donated": (X, {"donate_argnums": 0}),
    "compiler_options": (X, {"compiler_options": {"xla_cpu_enable_fast_math": False}}),
    "keep_unused": (X, {"keep_unused": True}),
    "inline": (X, {"inline": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_to_do_at_the_swap(case: str, planner: Planner, compilations: Compilations) -> None:
    """The first call of the stitched program finds it in JAX's caches: else it would stall."""
    x, options = CASES[case]
    function = stitch_jit(double, mode="async", **options)

    def argument() -> Any:
        return X + 0 if "donate_argnums" in options else x

    given = argument()
    assert not is_marked(function(given), np.asarray(x) * 2)
    assert not isinstance(given, jax.Array) or given.is_deleted() == ("donate_argnums" in options)
    assert function.wait(LONG)
    given = argument()
    assert compilations.since() > 0
    assert is_marked(function(given), np.asarray(x) * 2)
    assert compilations.since() == 0


def test_the_background_works_under_the_options_of_the_caller(planner: Planner, compilations: Compilations) -> None:
    function = stitch_jit(lambda x: x @ x.T, mode="async")
    wide = np.linspace(0.0, 1.0, 12).reshape(3, 4)

    def call() -> Any:
        with jax.enable_x64(True), jax.default_matmul_precision("float32"), jax.default_device(jax.devices()[0]):
            return function(wide)

    assert not is_marked(call(), wide @ wide.T)
    assert function.wait(LONG)
    compilations.since()
    found = call()
    assert is_marked(found, wide @ wide.T) and found.dtype == "float64"
    assert compilations.since() == 0
    assert planner.precisions == ["float32"]
    config: Any = jax.config
    assert config.jax_default_matmul_precision is None
    found = function(wide)  # As under jax.jit, another trace: 32 bits again, and plain at first.
    assert found.dtype == "float32" and found[0, 0] < 900


def test_under_another_trace_it_is_stitched_at_once(planner: Planner) -> None:
    """No later call could swap anything there."""
    function = stitch_jit(double, mode="async")
    assert is_marked(jax.jit(lambda x: function(x))(X), X * 2)
    assert is_marked(jax.vmap(function)(X), X * 2)
    assert is_marked(jax.vmap(jax.jit(lambda: function(jnp.ones(3))), axis_size=2)(), np.full((2, 3), 2.0))
    assert set(planner.threads) == {threading.current_thread().name}
    value, gradient = jax.value_and_grad(lambda x: function(x).sum())(1.0)
    assert is_marked(value, 2.0) and gradient > 900
    assert not is_marked(function(X), X * 2)


def test_a_stitched_function_inside_does_not_hold_up_the_first_call(planner: Planner) -> None:
    inner = stitch_jit(lambda x: x + 1, mode="now")
    function = stitch_jit(lambda x: inner(x) * 2, mode="async")
    planner.open.clear()
    assert not is_marked(function(X), (X + 1) * 2)
    planner.open.set()
    assert function.wait(LONG)
    assert function(X)[0, 0] > 900
    # What ran plainly for the while must not be what others get.
    assert inner(X)[0, 0] > 900


@pytest.mark.filterwarnings("error")
def test_the_users_errors_are_those_of_jit(planner: Planner) -> None:
    def fun(x: Any) -> Any:
        return x @ jnp.ones(3)

    function, plain = stitch_jit(fun, mode="async"), jax.jit(fun)
    for wrong in ((X,), (object(),), (), (X, X)):
        with pytest.raises(Exception) as expected:
            plain(*wrong)
        for _ in range(2):
            with pytest.raises(type(expected.value)) as found:
                function(*wrong)
            assert _first_line(found.value) == _first_line(expected.value)
            assert found.value.__context__ is None or expected.value.__context__ is not None
    assert not is_marked(function(X.T), X.T @ jnp.ones(3))
    assert function.wait(LONG)
    assert is_marked(function(X.T), X.T @ jnp.ones(3))
    with pytest.raises(TypeError):
        function(X)


def _first_line(error: BaseException) -> str:
    return re.sub("0x[0-9a-f]+", "", str(error).splitlines()[0])


@pytest.mark.parametrize("failure", [CompilerMissing("it is a test"), RuntimeError("a defect")])
def test_a_failure_is_one_warning(failure: Exception, planner: Planner) -> None:
    planner.failure = failure
    function = stitch_jit(double, mode="async")
    with pytest.warns(StitchWarning, match=f"double runs as plain jax.jit: .*{failure}") as warnings:
        for _ in range(2):
            assert not is_marked(function(X), X * 2)
            assert not is_marked(function(X[0]), X[0] * 2)
            assert function.wait(LONG)
    assert len(warnings) == 1


@pytest.mark.filterwarnings("error")
def test_a_failure_that_is_no_warning_comes_out_of_wait(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    planner.failure = RuntimeError("a defect")
    for strict, expected in (("0", StitchWarning), ("1", RuntimeError)):
        monkeypatch.setenv("JAX_STITCH_STRICT", strict)
        function = stitch_jit(double, mode="async")
        assert not is_marked(function(X), X * 2)
        with pytest.raises(expected, match="a defect"):
            function.wait(LONG)
        if strict == "0":
            assert not is_marked(function(X), X * 2)
            continue
        for _ in range(2):  # It is raised, not worked around: also by the next call, but not of other types.
            with pytest.raises(RuntimeError, match="a defect") as caught:
                function(X)
        assert "double" in caught.value.__notes__[0] and len(set(caught.value.__notes__)) == len(caught.value.__notes__)
        planner.failure = None
        assert not is_marked(function(X[0]), X[0] * 2)


def test_methods_and_clear_cache(planner: Planner) -> None:
    class Model:
        def __init__(self, w: float) -> None:
            self.w = w

        @stitch_jit(mode="async", static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.w

    a, b = Model(2.0), Model(3.0)
    for n in range(2):
        assert not is_marked(a.apply(X), X * 2) and not is_marked(b.apply(X), X * 3)
        assert a.apply.wait(LONG)
        assert is_marked(a.apply(X), X * 2) and is_marked(b.apply(X), X * 3)
        Model.apply.clear_cache()
        assert len(planner.threads) == 2 * (n + 1)


def test_without_jit(planner: Planner) -> None:
    function = stitch_jit(double, mode="async")
    for _ in range(2):
        with jax.disable_jit():
            same(function(X), X * 2)
        assert not planner.threads
        if function(X) is not None:
            assert function.wait(LONG)
        planner.threads.clear()
    jax.clear_caches()
    assert not is_marked(function(X), X * 2)
    assert function.wait(LONG)
    assert is_marked(function(X), X * 2)


def test_eight_threads(planner: Planner) -> None:
    """Each sees plain results, then stitched ones, and no other; it is traced and planned once for each type."""
    run, counter = counted(double)
    function = stitch_jit(run, mode="async")
    inputs = [X, X[0]]
    expected = [np.asarray(x) * 2 for x in inputs]
    planner.open.clear()
    seen: list[list[list[bool]]] = [[[], []] for _ in range(8)]
    failures: list[BaseException] = []
    called, end = threading.Barrier(9), time.monotonic() + LONG

    def call(mine: list[list[bool]]) -> None:
        try:
            swapped = 0
            while swapped < 20 and time.monotonic() < end:
                for found, x, wanted in zip(mine, inputs, expected, strict=True):
                    found.append(is_marked(function(x), wanted))
                if len(mine[0]) == 3:
                    called.wait(LONG)
                swapped += mine[0][-1] and mine[1][-1]
        except BaseException as failure:
            failures.append(failure)
            called.abort()

    threads = [threading.Thread(target=call, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    called.wait(LONG)
    planner.open.set()
    for thread in threads:
        thread.join()
    assert not failures
    for found in (found for mine in seen for found in mine):
        assert not any(found[:3]) and all(found[-20:])
        assert sorted(found) == found, "stitched, then plain again"
    assert counter.runs == 2 and len(planner.threads) == 2


@pytest.mark.usefixtures("only_new_objects")
def test_nothing_is_prepared_for_a_function_that_is_gone(planner: Planner) -> None:
    first, second = stitch_jit(double, mode="async"), stitch_jit(lambda x: x + 1, mode="async")
    planner.open.clear()
    first(X)
    second(X)
    gone = weakref.ref(second)
    del second
    gc.collect()
    assert gone() is None
    planner.open.set()
    assert first.wait(LONG)
    third = stitch_jit(double, mode="async")
    third(X)
    assert third.wait(LONG)
    assert len(planner.threads) == 2


def test_the_background_thread_lets_others_in() -> None:
    """Python has it keep the interpreter for 5 ms at a time: see ``test_giving_way.py``. Of a core it gets what calls
    leave."""
    hooks: list[object] = []
    niceness: list[int] = []

    class Busy:
        done = threading.Event()

        def run(self) -> None:
            hooks.append(sys.getprofile())
            niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            self.done.set()

        def abandon(self, forked: bool) -> None: ...

    busy = Busy()
    background.submit(busy)
    assert busy.done.wait(LONG)
    assert hooks[0] is not None
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert niceness[0] > own or sys.platform != "linux"
