"""Verdicts: what processes have measured together, until it is clear; and what is no verdict at all."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import pytest

from jax_stitch import StitchWarning, stitch_jit
from jax_stitch.backend.compile import CompilerTimeout, CompilerTrouble
from jax_stitch.backend.compile.errors import NoRoom
from jax_stitch.frontend.capture.errors import CaptureError
from jax_stitch.jit.programs import verdicts
from jax_stitch.jit.programs.record import GivenUp
from jax_stitch.jit.programs.verdicts import BAR, Measurement, Verdict, measured
from jax_stitch.jit.rebuilt import elsewhere, find
from jax_stitch.jit.tiers import trial
from jax_stitch.util import store
from jax_stitch.util.child import ChildDied
from tests.modes.conftest import LONG, Planner, is_marked

X = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def own_cache(cache: Path) -> Path:
    """Verdicts of other tests are none of this one's."""
    return cache


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""


def double(x: Any) -> Any:
    return x * 2


def decided(function: Any, *args: Any) -> Any:
    """The only program of a function, called until it is decided."""
    function(*args)
    assert function.wait(LONG)
    while not function.status().decided:
        function(*args)
    (program,) = function.status().programs
    return program


def measuring(monkeypatch: pytest.MonkeyPatch, speedup: float) -> None:
    """The next trials find this."""
    monkeypatch.setattr(trial, "decided", lambda *s: trial.Times(speedup, 1.0) if all(s) else None)


@pytest.mark.parametrize(
    ("speedups", "stays", "is_open"),
    [
        ([3.0], True, False),
        ([0.3], False, False),
        ([1.2], True, True),
        ([1.03], False, True),
        ([1.0, 1.2], True, True),
        ([0.87, 1.27, 1.11], True, True),
        ([0.87, 1.27, 1.11, 1.28, 1.24], True, False),
        ([1.03] * 5, False, False),
        ([1.3, 1.32], True, False),
    ],
)
def test_measurements_are_combined(speedups: list[float], stays: bool, is_open: bool) -> None:
    """Catches: the first of several measurements decides for ever, though chance has put it on its side of the bar."""
    verdict: Verdict | None = None
    for speedup in speedups:
        verdict = measured(speedup, 1.0, 0.0, verdict)
    assert verdict is not None and verdict.stitched is stays and verdict.is_open is is_open
    assert [m.speedup for m in verdict.measurements] == speedups
    low, high = verdict.spread or (0.0, 0.0)
    assert verdict.speedup is not None and low < verdict.speedup < high
    assert f"{verdict.speedup:.2f} times" in verdict.reason and datetime.date.today().isoformat() in verdict.reason
    assert stays or f"{BAR} is asked for" in verdict.reason


def test_more_measurements_tell_more() -> None:
    """Also those that differ; noise within one makes it tell less."""
    once, noisy = measured(1.2, 1.0, 0.0), measured(1.2, 1.0, 0.3)
    twice = measured(1.2, 1.0, 0.0, once)

    def width(verdict: Verdict) -> float:
        low, high = verdict.spread or (0.0, 0.0)
        return high - low

    assert width(twice) < width(once) < width(noisy)


@pytest.mark.parametrize(("first", "then"), [(1.03, 1.3), (1.15, 0.8)])
def test_what_is_close_is_measured_again(
    first: float, then: float, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a verdict of 1.03 that every later process takes over, though the program is faster on most days."""
    measuring(monkeypatch, first)
    assert decided(stitch_jit(double, mode="auto"), X).state == ("stitched" if first >= BAR else "plain")
    measuring(monkeypatch, then)
    again = stitch_jit(double, mode="auto")
    again(X)
    assert again.wait(LONG)
    (program,) = again.status().programs
    assert program.state == "trying" and "earlier ones left it open" in program.detail
    program = decided(again, X)
    assert program.speedup == pytest.approx((first * then) ** 0.5) and "2 measurements" in program.detail
    assert program.spread[0] < program.speedup < program.spread[1]


def test_what_stays_close_is_not_measured_for_ever(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(monkeypatch, BAR)
    for count in range(1, 6):
        assert f"{count} measurement" in decided(stitch_jit(double, mode="auto"), X).detail
    last = stitch_jit(double, mode="auto")
    last(X)
    assert last.wait(LONG) and last.status().decided and "5 measurements" in last.status().programs[0].detail


@pytest.mark.parametrize("speedup", [0.5, 1.03, 2.0])
def test_retry(speedup: float, planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: no way back from a kept verdict but to delete the cache folder."""
    measuring(monkeypatch, speedup)
    function = stitch_jit(double, mode="auto")
    decided(function, X)
    measuring(monkeypatch, 3.0)
    assert len(list(store.folder().glob("verdicts/*"))) == 1
    function.retry()
    assert not list(store.folder().glob("verdicts/*"))
    program = decided(function, X)
    assert program.state == "stitched" and program.speedup == pytest.approx(3.0)
    assert is_marked(function(X), X * 2)


def test_retry_plans_anew() -> None:
    """What a process has found on disk is gone, of calls and of places inside other programs."""
    function, x = stitch_jit(lambda x: jax.nn.softmax(jax.nn.softmax(x)) * 11, mode="now"), jnp.ones((64, 96))
    function(x)
    jax.jit(lambda x: function(x) + 1)(x)
    assert list(store.folder().glob("programs/*"))
    function.retry()
    assert not list(store.folder().glob("programs/*")) and function.status().programs == ()
    function(x)
    assert function.status().programs[0].planning_seconds > 0


def test_retry_of_what_was_never_called() -> None:
    for mode in ("auto", "now", "async", "off"):
        function = stitch_jit(double, mode=mode)
        function.retry()
        assert function.status().programs == ()


@pytest.mark.parametrize(
    "failure",
    [
        CompilerTimeout("the compiler came to no end"),
        CompilerTrouble("the compiler was killed: no memory"),
        NoRoom(28, "No space left on device"),
        MemoryError("no memory"),
        CaptureError("the process that made its kernels died of signal 9"),
        GivenUp("its kernels were not made after 30 s of processor time"),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.filterwarnings("ignore::jax_stitch.StitchWarning")
def test_what_may_pass_is_not_kept(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a program left plain by every later process, since one had run out of something."""

    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    def softmax(x: Any) -> Any:
        return jax.nn.softmax(jnp.sin(jax.nn.softmax(x))) * 3

    x = jnp.ones((256, 300))
    with monkeypatch.context() as patch:
        patch.setattr(find, "make_elsewhere", fail)
        assert decided(stitch_jit(softmax, mode="auto"), x).state == "plain"
    assert not list(store.folder().glob("verdicts/*"))
    measuring(monkeypatch, 2.0)
    jax.clear_caches()
    assert decided(stitch_jit(softmax, mode="auto"), x).state == "stitched"


def test_a_child_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, as the first may have been about to end."""

    def die(*_: Any) -> Any:
        raise ChildDied("was killed")

    monkeypatch.setattr(elsewhere.MAKER, "ask", die)
    function = stitch_jit(lambda x: jax.nn.softmax(jnp.cos(jax.nn.softmax(x))) * 5, mode="auto")
    with pytest.warns(StitchWarning, match="the process that made its kernels was killed"):
        assert decided(function, jnp.ones((256, 300))).state == "plain"
    assert not list(store.folder().glob("verdicts/*"))


@pytest.mark.parametrize("mode", ["now", "async", "auto"])
def test_a_program_without_kernels_is_not_kept(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: "no kernel was found" repeated by later processes, which loaded the program that said so."""
    usual = find.make

    def without_kernels(*args: Any) -> Any:
        made = usual(*args)
        return msgspec.structs.replace(made, kernels=(), sources=(), source_of=(), launches=0, replaced=0)

    def softmax(x: Any) -> Any:
        return jax.nn.softmax(jnp.tan(jax.nn.softmax(x))) * 7

    x = jnp.ones((256, 300))
    with monkeypatch.context() as patch:
        patch.setattr(find, "make_elsewhere", lambda *_: None)
        patch.setattr(find, "make", without_kernels)
        function = stitch_jit(softmax, mode=mode)
        function(x)
        assert function.wait(LONG)
        assert "no kernel was found" in str(function.status()) or mode == "async"
    assert not list(store.folder().glob("verdicts/*")) and not list(store.folder().glob("programs/*"))
    jax.clear_caches()
    again = stitch_jit(softmax, mode=mode)
    again(x)
    assert again.wait(LONG) and again.status().programs[0].kernels == 1


def test_what_a_slow_compiler_left_out_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program less the kernels that took the compiler too long is this process's alone, and so is its verdict."""
    usual = find.make

    monkeypatch.setattr(find, "make_elsewhere", lambda *_: None)
    monkeypatch.setattr(find, "make", lambda *args: msgspec.structs.replace(usual(*args), lasting=False))
    measuring(monkeypatch, 2.0)
    function = stitch_jit(lambda x: jax.nn.softmax(jnp.exp(jax.nn.softmax(x))) * 9, mode="auto")
    assert decided(function, jnp.ones((256, 300))).state == "stitched"
    assert not list(store.folder().glob("verdicts/*")) and not list(store.folder().glob("programs/*"))


@pytest.mark.parametrize(
    ("kept", "speedup"),
    [
        ({"stitched": True, "reason": "2.00 times jax.jit", "plain_seconds": 2.0, "stitched_seconds": 1.0}, 2.0),
        ({"stitched": False, "reason": "nothing worth stitching", "programs": []}, None),
        ({"stitched": True, "reason": "", "programs": ["a"], "kernels": 1, "replaced": 2, "what is new": 3}, None),
    ],
)
def test_what_other_versions_have_kept_is_read(kept: dict[str, Any], speedup: float | None) -> None:
    """Catches: an exception out of a user's first call, where a field is not there yet or no longer."""
    store.write("verdicts", "name", json.dumps(kept).encode())
    found = verdicts.load("name")
    assert found is not None and found.speedup == speedup and not found.is_open and found.reason == kept["reason"]


@pytest.mark.parametrize("kept", [b"", b"{}", b"[1]", b'{"stitched": 3, "reason": ""}'])
def test_what_cannot_be_read_is_no_verdict(kept: bytes) -> None:
    store.write("verdicts", "name", kept)
    assert verdicts.load("name") is None


def test_a_verdict_comes_back_as_it_was() -> None:
    verdict = Verdict(True, "why", 2.0, 1.0, ("a",), 1, 2, (Measurement(2.0, 0.1, "2026-12-31"),))
    verdicts.keep("name", verdict)
    assert verdicts.load("name") == verdict
    verdicts.forget("name")
    assert verdicts.load("name") is None
