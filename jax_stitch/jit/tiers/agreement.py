"""One verdict for all processes of ``jax.distributed``, from the same call on in each.

A program over devices of several processes waits in its collectives for the others, so that all must run the same
program at each call. Each process counts its calls of a program: since all make the same calls, the numbers mean the
same. At some of them (4, 8, 16, ...) every process asks what is to be done from there on. Process 0 decides, by what
all have told of the programs that they have made, and by its own times of real calls. The first to write a decision
into the store that all share is heard; whoever waits too long for process 0 writes that all stays as it is. So no
process ever runs what another does not, whoever is late or gone.

Nothing here knows of JAX. What goes through the store are words and hashes, never code.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from jax_stitch.jit.programs.verdicts import Verdict, measured
from jax_stitch.jit.tiers.trial import Kind, decided

PATIENCE = 60.0
"""Seconds in which process 0 has to come to a call that another process has come to."""

_FIRST, _LAST = 4, 1024
"""The calls at which is asked whether all are ready: at powers of two from the one to the other, then at multiples of
that."""
_SAMPLES = 8
"""Timed calls between two looks at the times."""


class SharedStore(Protocol):
    """Words that all processes read and write."""

    def put(self, key: str, value: str) -> bool:
        """Write a value once and for all; False where there is one."""

    def get(self, key: str, seconds: float) -> str | None:
        """Return the value, waited for so long; None where none comes."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one call does."""

    kind: Kind = Kind.PLAIN
    is_timed: bool = False
    """Whether its time is to be told to ``timed``."""
    verdict: Verdict | None = None
    """What all calls from this one on run, once that is decided."""


class Agreement:
    """Of one process, on one program. ``name`` is the program's, the same in all ``count`` processes."""

    def __init__(self, store: SharedStore, name: str, process: int, count: int, patience: float = PATIENCE) -> None:
        self._store, self._name, self._process, self._count = store, name, process, count
        self._patience = patience
        self._lock = threading.Lock()
        self._calls = 1  # The first has been made before anything is known of the program.
        self._since: int | None = None
        """The call from which on both programs run in turn."""
        self._times: dict[Kind, list[float]] = {kind: [] for kind in Kind}
        self._verdict: Verdict | None = None
        self.known: Verdict | None = None
        """What this process knows of the program from earlier ones: heard in process 0."""

    def tell(self, word: str, *, ready: bool) -> None:
        """Tell all that this process has made the program whose hash is ``word``, or why it has none."""
        self._store.put(self._key("made", self._process), json.dumps([ready, word]))

    def step(self) -> Step:
        """Return what the next call does. It may wait for process 0 to come to the same call."""
        with self._lock:
            number, self._calls = self._calls, self._calls + 1
            if self._verdict is not None:
                return self._settled()
            if self._since is None:
                if not _is_asked(number):
                    return Step()
                return self._asked(number)
            return self._tried(number)

    def timed(self, kind: Kind, seconds: float) -> None:
        """Take note of how long a call took."""
        self._times[kind].append(seconds)

    def _asked(self, number: int) -> Step:
        word, verdict = self._decided(number, self._proposal)
        if verdict is not None:
            self._verdict = verdict
            return self._settled()
        if word == "try":
            self._since = number
            return self._tried(number)
        return Step()

    def _tried(self, number: int) -> Step:
        assert self._since is not None
        done = number - self._since
        if done > 2 and (done - 2) % _SAMPLES == 0:
            _, verdict = self._decided(number, self._by_times)
            if verdict is not None:
                self._verdict = verdict
                return self._settled()
        if done < 2:  # The first call of a program loads it.
            return Step((Kind.PLAIN, Kind.STITCHED)[done])
        kind = (Kind.PLAIN, Kind.STITCHED, Kind.STITCHED, Kind.PLAIN)[(done - 2) % 4]
        return Step(kind, is_timed=True)

    def _settled(self) -> Step:
        assert self._verdict is not None
        return Step(Kind.STITCHED if self._verdict.stitched else Kind.PLAIN, verdict=self._verdict)

    def _decided(self, number: int, propose: Callable[[], tuple[str, Verdict | None]]) -> tuple[str, Verdict | None]:
        """Return what all do from that call on: a word, and the verdict if there is one."""
        key = self._key("call", number)
        if self._process == 0:
            word, verdict = propose()
            self._store.put(key, json.dumps([word, msgspec.to_builtins(verdict)]))
        decision = self._store.get(key, self._patience)
        if decision is None:
            late = Verdict(False, f"process 0 was not at call {number} in {self._patience:g} s")
            self._store.put(key, json.dumps(["stay", msgspec.to_builtins(late)]))
            decision = self._store.get(key, self._patience)
        if decision is None:  # There is no store any more: whatever this process does, it is alone.
            return "stay", Verdict(False, "the processes could not be asked")
        word, verdict_facts = json.loads(decision)
        if verdict_facts is None:
            return word, None
        return word, msgspec.convert(verdict_facts, Verdict)

    def _proposal(self) -> tuple[str, Verdict | None]:
        """Return the proposal of process 0, by what all have made."""
        told: list[list[object]] = []
        for process in range(self._count):
            made = self._store.get(self._key("made", process), 0.0)
            if made is None:
                return "wait", None
            told.append(json.loads(made))
        for process, (ready, word) in enumerate(told):
            if not ready:
                return "stay", Verdict(False, str(word) if process == 0 else f"in process {process}: {word}")
        if len({str(word) for _, word in told}) > 1:
            return "stay", Verdict(False, "the processes have made different programs of it")
        if self.known is not None and not self.known.is_open:
            return "known", self.known
        return "try", None

    def _by_times(self) -> tuple[str, Verdict | None]:
        """Return the proposal of process 0, by its own times."""
        times = decided(self._times[Kind.PLAIN], self._times[Kind.STITCHED])
        if times is None:
            return "try", None
        return "timed", measured(times.plain, times.stitched, times.error, self.known)

    def _key(self, what: str, number: int) -> str:
        return f"jax_stitch/{self._name}/{what}/{number}"


def _is_asked(number: int) -> bool:
    if number > _LAST:
        return number % _LAST == 0
    return number >= _FIRST and number & (number - 1) == 0
