"""Runs many programs side by side, reduces what fails, and adds up."""

from __future__ import annotations

import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.fuzz import reduce
from tests.fuzz.child import Outcome, Process, Task, run
from tests.fuzz.program import Program


@dataclass
class Failure:
    """One kind of failure, with its smallest program and how often it came."""

    outcome: Outcome
    reduced: Program
    count: int = 1
    numbers: list[int] = field(default_factory=list)

    @property
    def title(self) -> str:
        ways = self.outcome.way.name if self.outcome.way else "no way"
        return f"{self.outcome.kind} ({ways}): {self.outcome.signature}; {', '.join(self.reduced.operations)}"


@dataclass
class Summary:
    """What all programs showed."""

    programs: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Outcome] = field(default_factory=dict)
    """Of each kind of what is undecided."""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        self.programs += 1
        self.kinds[outcome.kind] += 1
        if outcome.kind == "undecided":
            self.undecided[outcome.signature] += 1
            self.examples.setdefault(outcome.signature, outcome)
        for name, found in outcome.counts.items():
            self.counts.setdefault(name, Counter()).update(found)


def key_of(outcome: Outcome, reduced: Program) -> str:
    """Failures of one key are one failure."""
    if outcome.kind in ("error", "hang") and "over" not in outcome.signature:
        return f"{outcome.kind} {outcome.signature}"
    return f"{outcome.kind} {outcome.signature} {' '.join(sorted(set(reduced.operations)))}"


def outcomes(tasks: Iterator[Task], jobs: int, end: float) -> Iterator[Outcome]:
    """Runs tasks, so many at a time, until there are no more or the time is over."""
    running: list[Process] = []
    more = True
    while more or running:
        while more and len(running) < jobs and time.monotonic() < end:
            task = next(tasks, None)
            if task is None:
                more = False
                break
            running.append(Process(task))
        more = more and time.monotonic() < end
        ready, _, _ = select.select(running, [], [], 0.2) if running else ([], [], [])
        for process in list(running):
            ended = process in ready and not process.read()
            if ended or process.late:
                running.remove(process)
                yield process.end(killed=not ended)


def with_users_flags(hang: Outcome) -> Outcome:
    """What comes of a program that took too long, with kernels as users have them: without optimisation they may take
    ten times as long as XLA's."""
    if hang.kind != "hang" or hang.way is None or hang.task.optimised is not None:
        return hang
    return run(replace(hang.task, program=hang.program, ways=(hang.way,), optimised=True))


def fuzz(
    tasks: Iterator[Task],
    jobs: int,
    seconds: float,
    *,
    reducing: float = 90.0,
    found: Callable[[Failure], None] = lambda failure: None,
    going: Callable[[Summary], None] = lambda summary: None,
    each: Callable[[Outcome], None] = lambda outcome: None,
) -> Summary:
    """Runs tasks for so long; each new kind of failure is reduced for ``reducing`` seconds and told of by ``found``.
    ``going`` is told of the sum as it goes, about once a minute, ``each`` of all outcomes."""
    summary = Summary()
    began = time.monotonic()
    known: dict[str, str] = {}
    told = began
    for first in outcomes(tasks, jobs, began + seconds):
        outcome = with_users_flags(first)
        summary.add(outcome)
        each(outcome)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            summary.seconds = told - began
            print(f"{told - began:.0f} s: {dict(summary.kinds)}", file=sys.stderr, flush=True)
            going(summary)
        if not outcome.failed:
            continue
        exact = f"{outcome.kind} {outcome.signature}"
        if outcome.kind == "error" and exact in known:
            again = summary.failures[known[exact]]
            again.count += 1
            again.numbers.append(outcome.task.number)
            continue
        if not isinstance(outcome.program, Program):
            continue
        reduced, last = (outcome.program, outcome)
        if reducing and outcome.way is not None:
            reduced, last = reduce.reduce(outcome, reducing)
        key = key_of(last, reduced)
        known[exact] = key
        if key in summary.failures:
            summary.failures[key].count += 1
        else:
            summary.failures[key] = Failure(last, reduced)
            found(summary.failures[key])
        summary.failures[key].numbers.append(outcome.task.number)
    summary.seconds = time.monotonic() - began
    return summary
