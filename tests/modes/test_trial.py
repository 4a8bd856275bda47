"""The choice between two programs by their times."""

from __future__ import annotations

import random
import threading

import pytest

from jax_stitch.jit.tiers import trial as module
from jax_stitch.jit.tiers.trial import CLEARLY, Kind, Times, Trial, decided


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)


def run(seconds: dict[Kind, float], noise: float = 0.0, seed: int = 0) -> tuple[Times, int]:
    """A trial of programs that take so long, with that noise; the times, and the calls that were made."""
    trial, rng, calls = Trial(), random.Random(seed), 0
    while True:
        kind = trial.begin()
        assert kind is not None
        calls += 1
        times = trial.end(kind, seconds[kind] * (1 + noise * rng.random() ** 4 * 10))
        if times is not None:
            return times, calls


@pytest.mark.parametrize("plain", [1e-5, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize(("ratio", "stays"), [(0.5, True), (0.9, True), (0.99, False), (1.0, False), (2.0, False)])
def test_the_faster_one_stays(plain: float, ratio: float, stays: bool) -> None:
    times, calls = run({Kind.PLAIN: plain, Kind.STITCHED: plain * ratio})
    assert times.stays is stays and times == Times(plain, plain * ratio)
    looks = 1 if stays or plain >= 0.1 else 2
    assert calls <= 18 * looks and (plain < 1 or calls <= 8), "a few calls each"


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_met_with_more_calls(seed: int) -> None:
    """Calls that another program holds up, by up to three times, now and then: the mean would be of no use."""
    for ratio, stays in ((0.8, True), (1.1, False)):
        times, calls = run({Kind.PLAIN: 1e-3, Kind.STITCHED: 1e-3 * ratio}, 0.3, seed)
        assert times.stays is stays
        assert calls <= 402 * (1 if stays else 2)


def test_long_calls_come_to_an_end() -> None:
    """Noise must not have a user's slow calls waited for one by one for minutes."""
    _, calls = run({Kind.PLAIN: 0.4, Kind.STITCHED: 0.4 * CLEARLY}, 0.5)
    assert calls <= 14


def test_both_are_called_equally_often_in_turns() -> None:
    trial, kinds = Trial(), []
    for _ in range(18):
        kind = trial.begin()
        assert kind is not None
        kinds.append(kind)
        trial.end(kind, None if len(kinds) == 1 else 0.1 + random.Random(len(kinds)).random())
    assert kinds[0] is kinds[1] is Kind.PLAIN, "the one that failed told nothing"
    assert kinds[2] is Kind.STITCHED
    assert kinds[3:11] == [Kind.PLAIN, Kind.STITCHED, Kind.STITCHED, Kind.PLAIN] * 2


def test_short_calls_are_made_in_runs_of_which_the_first_does_not_count() -> None:
    """What follows the other program's call touches each page of its results for the first time: a program that is
    faster in a row looked slower where the two took turns."""
    trial, last, times = Trial(), None, None
    while times is None:
        kind = trial.begin()
        assert kind is not None
        seconds = {Kind.PLAIN: 1e-3, Kind.STITCHED: 7e-4}[kind] + (2e-3 if kind is not last else 0.0)
        times, last = trial.end(kind, seconds), kind
    assert times == Times(1e-3, 7e-4)


@pytest.mark.parametrize("held_up", list(Kind))
def test_what_holds_up_one_of_them_for_a_moment_decides_nothing(held_up: Kind) -> None:
    """Catches: a program left for good since its few calls of 10 ms met with something else on the machine."""
    trial, times, spent = Trial(), None, 0.0
    seconds = {Kind.PLAIN: 1e-3, Kind.STITCHED: 7e-4}
    while times is None:
        kind = trial.begin()
        assert kind is not None
        taken = seconds[kind] * (2.0 if kind is held_up and spent < 0.015 else 1.0)
        spent, times = spent + taken, trial.end(kind, taken)
    assert times.stays


def test_calls_between_two_looks_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a second look at the same moment."""
    monkeypatch.setattr(module, "_PAUSE", 60.0)
    trial, calls = Trial(), 0
    while (kind := trial.begin()) is not None and calls < 100:
        calls += 1
        assert trial.end(kind, 1e-3) is None
    assert 12 <= calls < 100 and trial.begin() is None and trial.calls == 0


def test_first_calls_do_not_count() -> None:
    """They load the program."""
    trial = Trial()
    for seconds in (100.0, 100.0):
        kind = trial.begin()
        assert kind is not None and trial.end(kind, seconds) is None
    assert trial.calls == 0


def test_one_thread_measures_at_a_time() -> None:
    trial = Trial()
    kind = trial.begin()
    found = []
    thread = threading.Thread(target=lambda: found.append(trial.begin()))
    thread.start()
    thread.join()
    assert found == [None] and kind is not None
    trial.end(kind, 1.0)
    assert trial.begin() is not None


def test_nothing_is_decided_on_nothing() -> None:
    assert decided([], []) is None and decided([1.0] * 9, []) is None and decided([1.0] * 3, [0.1] * 3) is None
