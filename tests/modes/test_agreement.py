"""Several processes run the same program at each call, whoever is late, has made another, or has made none."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from jax_stitch.jit.programs.verdicts import Verdict
from jax_stitch.jit.tiers.agreement import Agreement, Step
from jax_stitch.jit.tiers.trial import Kind

CALLS = 300


class Words:
    """A store in memory, as slow as one on a network."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self.is_gone = False

    def put(self, key: str, value: str) -> bool:
        with self._changed:
            if key in self._values or self.is_gone:
                return False
            self._values[key] = value
            self._changed.notify_all()
        return True

    def get(self, key: str, seconds: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._values or self.is_gone, seconds)
            return None if self.is_gone else self._values.get(key)


def run(
    count: int,
    tell: Callable[[int, Agreement, int], None],
    *,
    speed: float = 2.0,
    pause: Callable[[int, int], float] = lambda process, call: 0.0,
    known: Verdict | None = None,
    patience: float = 20.0,
    words: Words | None = None,
) -> list[list[Step]]:
    """The steps of each process. ``tell`` is called before each call."""
    words = words or Words()
    steps: list[list[Step]] = [[] for _ in range(count)]

    def process(number: int) -> None:
        agreement = Agreement(words, "f", number, count, patience)
        agreement.known = known if number == 0 else None
        for call in range(1, CALLS):
            tell(number, agreement, call)
            time.sleep(pause(number, call))
            step = agreement.step()
            if step.is_timed:
                # Each has times of its own: those of process 0 count.
                agreement.timed(step.kind, (speed if number == 0 else 1 / speed) if step.kind is Kind.PLAIN else 1.0)
            steps[number].append(step)

    threads = [threading.Thread(target=process, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return steps


def made_at(calls: dict[int, int], word: Callable[[int], str] = lambda process: "same") -> Callable[..., None]:
    """Each process has made its program at a call of its own."""

    def tell(number: int, agreement: Agreement, call: int) -> None:
        if call == calls.get(number):
            agreement.tell(word(number), ready=True)

    return tell


def kinds(steps: list[Step]) -> list[Kind]:
    return [step.kind for step in steps]


def verdicts(steps: list[list[Step]]) -> set[tuple[bool, str]]:
    """What it ends with."""
    return {(each[-1].verdict.stitched, each[-1].verdict.reason) for each in steps if each[-1].verdict is not None}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("speed", (2.0, 0.5, 1.0))
def test_all_run_the_same_at_each_call(seed: int, speed: float) -> None:
    """Whenever each is ready, and however long each takes between calls: one that went by its own readiness, or by its
    own times, would differ."""
    rng = random.Random(seed)
    calls = {number: rng.randrange(1, 40) for number in range(3)}
    delays = [[rng.random() * 0.004 for _ in range(CALLS)] for _ in range(3)]
    found = run(3, made_at(calls), speed=speed, pause=lambda process, call: delays[process][call])
    assert kinds(found[0]) == kinds(found[1]) == kinds(found[2])
    assert not any(step.kind is Kind.STITCHED for each in found for step in each[: max(calls.values()) - 1])
    (verdict,) = verdicts(found)
    assert verdict[0] == (speed > 1.0)
    tried = [step for step in found[0] if step.is_timed]
    assert {Kind.PLAIN, Kind.STITCHED} == {step.kind for step in tried}


def test_plain_until_the_last_is_ready() -> None:
    """One that never is, though it calls: no verdict, and nothing stitched."""
    found = run(2, made_at({0: 1}))
    assert {kind for each in found for kind in kinds(each)} == {Kind.PLAIN}
    assert verdicts(found) == set()


def test_different_programs_are_not_run() -> None:
    found = run(2, made_at({0: 2, 1: 3}, word=str))
    assert {kind for each in found for kind in kinds(each)} == {Kind.PLAIN}
    assert verdicts(found) == {(False, "the processes have made different programs of it")}


def test_one_without_a_program_keeps_all_from_theirs() -> None:
    def tell(number: int, agreement: Agreement, call: int) -> None:
        if call == 1:
            agreement.tell("no compiler" if number == 1 else "same", ready=number == 0)

    found = run(2, tell)
    assert {kind for each in found for kind in kinds(each)} == {Kind.PLAIN}
    assert verdicts(found) == {(False, "in process 1: no compiler")}


def test_what_process_0_knows_is_taken_at_once() -> None:
    """Not tried once more in later runs."""
    found = run(2, made_at({0: 1, 1: 6}), known=Verdict(True, "3.00 times jax.jit", 3.0, 1.0, programs=("a",)))
    assert kinds(found[0]) == kinds(found[1])
    assert not any(step.is_timed for step in found[0])
    assert verdicts(found) == {(True, "3.00 times jax.jit")}


@pytest.mark.parametrize("late", (0, 1))
def test_one_that_is_late_decides_nothing_alone(late: int) -> None:
    """Process 0 stands still for longer than others wait: they write that all stays, and it reads that. Another one
    that stands still is waited for."""
    found = run(
        2,
        made_at({0: 1, 1: 1}),
        pause=lambda process, call: 0.6 if process == late and call == 8 else 0.0,
        patience=0.2,
    )
    assert kinds(found[0]) == kinds(found[1])
    (verdict,) = verdicts(found)
    assert verdict[0] == (late == 1)


def test_without_a_store_all_stays_as_it_is() -> None:
    words = Words()

    def tell(number: int, agreement: Agreement, call: int) -> None:
        words.is_gone = True

    found = run(2, tell, patience=0.05, words=words)
    assert {kind for each in found for kind in kinds(each)} == {Kind.PLAIN}
