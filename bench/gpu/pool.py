"""Cases in processes of their own, several at a time, each with a limit: what hangs is named, the rest runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, get_args

from bench.clock import begun
from bench.worker import LATE, Worker

Verdict = Literal["well", "WRONG", "FAILED", "HUNG", "not here", "no time"]
"""``not here``: this device has no such thing; ``no time``: it was not begun, or all time ended before its own."""
BAD = ("WRONG", "FAILED", "HUNG")
LEAST = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """A question for ``module.answer`` in a worker, which gives ``{"verdict": ..., "told": ...}``."""

    name: str
    module: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What a case came to."""

    name: str
    verdict: Verdict
    seconds: float = 0.0
    told: str = ""

    def __str__(self) -> str:
        return f"{self.name:44} {self.verdict:8} {self.seconds:5.1f} s  {self.told}".rstrip()


def run(
    cases: Sequence[Case],
    limit: float,
    budget: float,
    jobs: int,
    *,
    fresh: bool,
    show: Callable[[str], None] = print,
) -> list[Found]:
    """All cases, each within ``limit`` seconds; after ``budget`` none is begun. With ``fresh`` each has a new process;
    else processes are used again until one fails."""
    deadline = begun() + budget
    numbers = count()
    found: dict[int, Found] = {}

    def work() -> None:
        with ExitStack() as stack:
            worker = stack.enter_context(Worker({}))
            while (k := next(numbers)) < len(cases):
                found[k] = _found(cases[k], worker, limit, deadline)
                show(str(found[k]))
                if fresh and k + 1 < len(cases):
                    worker = stack.enter_context(Worker({}))

    with ThreadPoolExecutor(jobs) as threads:
        for future in [threads.submit(work) for _ in range(min(jobs, len(cases)))]:
            future.result()
    return [found[k] for k in sorted(found)]


def _found(case: Case, worker: Worker, limit: float, deadline: float) -> Found:
    start = time.monotonic()
    own = min(limit, deadline - start)
    if own < LEAST:
        return Found(case.name, "no time")
    answer = worker.ask(case.module, case.request, own)
    took = time.monotonic() - start
    if answer.values is not None:
        return Found(case.name, answer.values["verdict"], took, answer.values.get("told", ""))
    if not answer.reason.startswith(LATE):
        return Found(case.name, "FAILED", took, f"while {answer.stage}: {answer.reason}")
    return Found(case.name, "HUNG" if own == limit else "no time", took, f"while {answer.stage}")


def summary(found: Sequence[Found]) -> Iterator[str]:
    """A line that counts, and each bad case by name once more, at the end, where it is seen."""
    counts = {verdict: sum(f.verdict == verdict for f in found) for verdict in get_args(Verdict)}
    yield ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    yield from (str(f) for f in found if f.verdict in BAD)


def exit_status(found: Sequence[Found]) -> int:
    """1 where anything is bad or nothing was done, 10 where there was no time for all."""
    verdicts = {f.verdict for f in found}
    if verdicts & set(BAD) or not verdicts & {"well", "no time"}:
        return 1
    return 10 if "no time" in verdicts else 0


def command(module: str, told: str | None, names: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """The command line of a module whose ``answer`` takes a name; ``told`` is its description. The exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=told)
    parser.add_argument("--only", nargs="+", default=list(names), choices=tuple(names), metavar="NAME")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds in all (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: %(default)s)")
    options = parser.parse_args(argv)
    cases = [Case(name, module, {"name": name}) for name in options.only]
    found = run(cases, options.limit, options.budget, options.jobs, fresh=True)
    print("\n".join(summary(found)))
    return exit_status(found)
