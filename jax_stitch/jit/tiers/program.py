"""The states of one program of a function: for one set of types and static values.

::

    MAKING ---> TRYING ---> STITCHED
       |           '------> PLAIN
       +------------------> STITCHED   it is known to be faster, or nobody measures
       +------------------> PLAIN      it is known to be slower, or there is none
       '------------------> REFUSED    there is none, and the function is strict
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jax_stitch.jit.known_faults import Fault
from jax_stitch.jit.programs.record import Record
from jax_stitch.jit.programs.verdicts import Verdict
from jax_stitch.jit.tiers.agreement import Agreement
from jax_stitch.jit.tiers.trial import Trial
from jax_stitch.util.notices import Work


class State(StrEnum):
    """What the calls of a program run."""

    MAKING = "making"
    """Plain ``jax.jit``; the stitched program is being made."""
    TRYING = "trying"
    """Both in turn, timed."""
    STITCHED = "stitched"
    """The stitched program, from now on."""
    PLAIN = "plain"
    """Plain ``jax.jit``, from now on."""
    REFUSED = "refused"
    """Nothing: a call raises why it cannot be stitched."""


_AFTER: dict[State, frozenset[State]] = {
    State.MAKING: frozenset({State.TRYING, State.STITCHED, State.PLAIN, State.REFUSED}),
    State.TRYING: frozenset({State.STITCHED, State.PLAIN}),
    State.STITCHED: frozenset(),
    State.PLAIN: frozenset(),
    State.REFUSED: frozenset(),
}


@dataclass(slots=True, eq=False)
class Program:
    """One program and all that is known of it. Changes go through ``move``."""

    types: str
    """Those of its arguments, for people."""
    work: Work
    """While it is made: at what the background is."""
    state: State = State.MAKING
    verdict: Verdict | None = None
    trial: Trial = field(default_factory=Trial)
    made: Record = field(default_factory=Record)
    """What making it came to."""
    before: Verdict | None = None
    """What earlier processes have measured, where that is not enough."""
    keys: tuple[str, ...] = ()
    """The names that verdicts on it are kept under."""
    job: Any = field(default=None, repr=False)
    """What is made of it in the background: kept by nobody else, so that it goes with its function."""
    agreement: Agreement | None = None
    """With the other processes that make the same calls: then they decide together."""
    faults: tuple[Fault, ...] = ()
    """Those of XLA that strike it, and that it is compiled without."""
    failure: BaseException | None = None
    """What nobody has been warned of."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set once nothing more goes on in the background."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def call(self) -> str:
        """Return the function with the types of its arguments, for people."""
        return self.work.name

    @property
    def names(self) -> tuple[str, ...]:
        """Return those of its rebuilt programs on disk."""
        return tuple(self.made.programs)

    def move(self, state: State, verdict: Verdict | None = None) -> bool:
        """Enter another state; False where another thread, or the end of the process, was first."""
        with self._lock:
            if state not in _AFTER[self.state]:
                return False
            self.state = state
            self.verdict = verdict
            return True

    def after_fork(self) -> None:
        """Give up waiting for a thread that is not in this process, which may hold a lock of this program."""
        self._lock, self.done, self.trial = threading.Lock(), threading.Event(), Trial()
