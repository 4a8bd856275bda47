"""The smallest program that fails in the same way, found by trying smaller and smaller ones in a child process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from jax_stitch.jit.debug.attempt import Attempts
from jax_stitch.jit.debug.case import Case, load
from jax_stitch.jit.debug.outcome import Outcome
from jax_stitch.jit.debug.reductions import reductions, simplest, size
from jax_stitch.jit.debug.report import write_case


class NotFailing(RuntimeError):
    """The program of a report does not fail here. The message says what becomes of it."""


def minimise(
    folder: Path,
    timeout: float = 120.0,
    budget: float = 1800.0,
    step: Callable[[str], None] = lambda _: None,
) -> Path:
    """Reduce the program of a report; return the folder ``minimised`` in it, a report itself.

    Each attempt has ``timeout`` seconds, all of them together ``budget``. ``step`` is told what has been reached.
    Raises ``NotFailing``; ``OSError`` and ``hlo_parser.HloParseError`` where there is no such report.
    """
    case = load(folder)
    attempts = Attempts(timeout)
    try:
        step("running the program as it is")
        first = attempts.outcome(case)
        if not first.fails:
            raise NotFailing(f"the program of {folder} does not fail here: {first}")
        reduced = smallest(case, first, attempts, time.monotonic() + budget, step)
        last = attempts.outcome(reduced)
    finally:
        attempts.close()
    return write_case(reduced, last, folder / "minimised")


def smallest(
    case: Case, wanted: Outcome, attempts: Attempts, end: float, step: Callable[[str], None] = lambda _: None
) -> Case:
    """Return a case that fails as it does, of which no step of ``reductions`` makes a smaller one that does (or none by
    ``end``, of the monotonic clock).
    """

    def is_failing(candidate: Case) -> bool:
        return attempts.outcome(candidate).is_like(wanted)

    plain = simplest(case)
    case = plain if is_failing(plain) else case
    # What is cut off is replaced by the values that it had.
    case = replace(case, values={**attempts.values(case), **case.values})
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for candidate in reductions(case):
            if time.monotonic() >= end:
                break
            if size(candidate) < size(case) and is_failing(candidate):
                case, changed = candidate, True
                step("{} instructions, {} elements, {} attempts".format(*size(case), len(attempts.tried)))
                break
    return replace(case, values=_of_parameters(case))


def _of_parameters(case: Case) -> Mapping[str, np.ndarray]:
    names = {p.name for p in case.module.entry.parameters}
    return {name: value for name, value in case.values.items() if name in names}
