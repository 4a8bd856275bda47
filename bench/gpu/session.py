"""Runs steps one after the other within a time, passes by what hangs, and keeps everything in one tar file.

The limits of all steps together are no more than the time. What a step leaves of its own, the next ones have, up to
twice theirs. A step that is at its limit is interrupted, then killed, with every process that it has started.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.clock import BEGUN

Verdict = Literal["well", "not all done", "WRONG", "ended", "missing", "no time"]
"""Of a step: ``not all done`` where it said so itself, ``ended`` where its time was up, ``missing`` where it needs a
program that is not here, ``no time`` where it was not begun."""

PART = 10
"""Exit status where nothing is wrong, but not all was done."""
RESERVE = 6.0
"""Seconds at the end, for the file."""
GRACE = 4.0
"""Seconds between the interruption and the end of a step."""
MARGIN = 8.0
"""Seconds by which a step is told to be done before it is interrupted, counted from its start."""
LEAST = 5.0
"""A step is not begun for less."""
MARK = "BENCH_GPU_SESSION"
"""An environment variable by which the processes of a session are known, whoever started them."""
TOLD = 12
"""Lines of a step's output that are shown; the file has all."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the seconds that it may take. ``{seconds}`` in it becomes what it has."""

    name: str
    limit: float
    command: tuple[str, ...]
    needs: str = ""
    """A program without which it is left out."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step."""

    name: str
    verdict: Verdict
    seconds: float
    limit: float
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.name:20} {self.verdict:12} {self.seconds:6.1f} s of {self.limit:.0f}{detail}"


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """1 where anything is wrong, or nothing was done at all; ``PART`` where not all was done."""
    verdicts = {o.verdict for o in outcomes}
    if "WRONG" in verdicts or not verdicts & {"well", "not all done"}:
        return 1
    return PART if verdicts & {"not all done", "ended", "no time"} else 0


class Session:
    """Steps within ``budget`` seconds from ``start`` (of ``time.monotonic``); their output lies in ``folder``, and all
    of that folder in ``target``, rewritten after each step.

    Raises ``ValueError`` where the limits add up to more than the budget.
    """

    def __init__(self, steps: Sequence[Step], budget: float, folder: Path, target: Path, start: float) -> None:
        total = sum(step.limit for step in steps) + RESERVE
        if total > budget + 1e-6:
            raise ValueError(f"the limits of the steps add up to {total:.0f} s, more than the budget of {budget:.0f} s")
        self._steps = tuple(steps)
        self._end = start + budget - RESERVE
        self._folder, self._target = folder, target
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.outcomes: list[Outcome] = []

    def run(self, about: Mapping[str, Any], show: Callable[[str], None] = print) -> int:
        """Runs the steps; returns the exit status."""
        for k, step in enumerate(self._steps):
            later = sum(s.limit for s in self._steps[k + 1 :])
            allowed = min(2 * step.limit, self._end - time.monotonic() - later)
            show(f"== {step.name} (at most {max(allowed, 0):.0f} s)")
            try:
                outcome = self._outcome(step, allowed)
            except KeyboardInterrupt:
                self.outcomes.append(Outcome(step.name, "ended", 0.0, allowed, "the session was ended"))
                self._keep(about)
                raise
            finally:
                self._clear()
            self.outcomes.append(outcome)
            for line in self._last(step):
                show(f"   {line}")
            show(str(outcome))
            self._keep(about)
        return exit_status(self.outcomes)

    def _outcome(self, step: Step, allowed: float) -> Outcome:
        if allowed < LEAST:
            return Outcome(step.name, "no time", 0.0, max(allowed, 0.0))
        if step.needs and shutil.which(step.needs) is None:
            return Outcome(step.name, "missing", 0.0, allowed, f"{step.needs} is not installed")
        start = time.monotonic()
        inner = allowed - GRACE
        command = [part.replace("{seconds}", f"{max(inner - MARGIN, 2):.0f}") for part in step.command]
        with self._log(step).open("wb") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, MARK: self._mark, BEGUN: str(start)},
                    start_new_session=True,
                )
            except OSError as error:
                return Outcome(step.name, "WRONG", 0.0, allowed, f"it cannot be started: {error}")
            status = _waited(process, inner)
        took = time.monotonic() - start
        if status is None:
            text = self._log(step).read_text(encoding="utf-8", errors="replace")
            bad = re.search(r"FAILED|WRONG|HUNG|\d+ failed", text)
            return Outcome(step.name, "WRONG" if bad else "ended", took, allowed, "it was at its limit")
        if status == 0:
            return Outcome(step.name, "well", took, allowed)
        if status == PART:
            return Outcome(step.name, "not all done", took, allowed)
        return Outcome(step.name, "WRONG", took, allowed, f"exit status {status}")

    def _log(self, step: Step) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', step.name)}.log"

    def _last(self, step: Step) -> list[str]:
        path = self._log(step)
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line[:200] for line in lines if line.strip()][-TOLD:]

    def _clear(self) -> None:
        """Ends what is left of a step: its processes, also those in sessions of their own."""
        wanted = f"{MARK}={self._mark}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:  # It has ended by itself, or is another user's.
                continue

    def _keep(self, about: Mapping[str, Any]) -> None:
        """Writes the verdicts, and the one file."""
        left = [Outcome(s.name, "no time", 0.0, s.limit) for s in self._steps[len(self.outcomes) :]]
        every = [*self.outcomes, *left]
        told = {"about": dict(about), "exit_status": exit_status(every), "steps": [asdict(o) for o in every]}
        (self._folder / "verdicts.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        (self._folder / "verdicts.txt").write_text("".join(f"{o}\n" for o in every), encoding="utf-8")
        self._target.parent.mkdir(parents=True, exist_ok=True)
        beside = self._target.with_name(f".{self._target.name}.{os.getpid()}")
        with tarfile.open(beside, "w:gz") as tar:
            tar.add(self._folder, arcname="gpu")
        beside.replace(self._target)


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status; None where the process had to be ended. What even then does not end is left behind."""
    for wait, after in ((seconds, signal.SIGINT), (GRACE / 2, signal.SIGKILL), (GRACE / 2, None)):
        try:
            status = process.wait(wait)
            return status if wait == seconds else None
        except subprocess.TimeoutExpired:
            if after is not None:
                os.killpg(process.pid, after)
    return None
