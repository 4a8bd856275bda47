"""Processes that do the pieces of a benchmark, so that one that is ended by XLA ends nothing else.

A worker is asked one thing at a time and answers on a pipe of its own, in lines of JSON. Whatever a piece raises ends
its worker, since a failed kernel leaves a GPU's context unusable; the next question starts another.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.about import ROOT

Tell = Callable[[str], None]
LATE = "ran longer than"
"""How the reason begins of what did not end within its limit."""
TOLD = 600
"""Characters of a failure's text that are kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker found: ``values``, or the stage that it reached and why it got no further."""

    values: Mapping[str, Any] | None
    stage: str = "done"
    reason: str = ""


class Worker:
    """A process with these environment variables, started when it is first asked, and again after each failure."""

    def __init__(self, environment: Mapping[str, str], python: str | None = None) -> None:
        """``python`` is the interpreter, where that is another than this one."""
        self._python = python or sys.executable
        self._environment = {**os.environ, **environment}
        self._output, name = tempfile.mkstemp(prefix="bench-worker-")
        self._said = Path(name)
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def ask(self, module: str, request: Mapping[str, Any], limit: float) -> Answer:
        """What ``module.answer(request, tell)`` returns in the worker, if it does within ``limit`` seconds."""
        process = self._started()
        said = self._said.stat().st_size
        stage, deadline = "starting", time.monotonic() + limit
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"module": module, "request": dict(request)}).encode() + b"\n")
            process.stdin.flush()
            for line in self._lines(deadline):
                message = json.loads(line)
                if "values" in message:
                    return Answer(message["values"])
                stage = message["stage"]
            late = time.monotonic() >= deadline
        except BrokenPipeError:
            late = False
        code = self._end(wait=not late)
        reason = f"{LATE} {limit:.0f} s" if late else f"{_ending(code)}: {self._last(said)}"
        return Answer(None, stage, reason)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._answers, theirs = os.pipe()
            self._process = subprocess.Popen(
                [self._python, "-m", "bench.worker", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self._environment,
                pass_fds=(theirs,),
                start_new_session=True,
            )
            os.close(theirs)
        return self._process

    def _lines(self, deadline: float) -> Any:
        """Lines from the worker, until it closes its end or the time is up."""
        rest = b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._answers], [], [], left)[0]:
                return
            if not (read := os.read(self._answers, 1 << 16)):
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from lines

    def _end(self, *, wait: bool) -> int:
        """Ends the process and what it started, such as compilers; ``wait`` if it is about to end by itself."""
        process = self._process
        assert process is not None and process.stdin is not None
        if wait:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:  # A driver may keep a process whose kernel does not end: the rest goes on.
            code = -signal.SIGKILL
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        os.close(self._answers)
        self._process = None
        return code

    def _last(self, start: int) -> str:
        """The exception, or else the last lines, that the worker has written since its output was ``start`` long."""
        text = self._said.read_bytes()[start:].decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        raised = [line for line in lines if not line.startswith((" ", "Traceback", "---", "For simplicity"))]
        return " | ".join((raised or lines)[-2:])[-TOLD:]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._end(wait=False)
        os.close(self._output)
        self._said.unlink()


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def main(argv: Sequence[str]) -> int:
    """The worker's side: answers questions on standard input until it is closed."""
    with os.fdopen(int(argv[0]), "w", encoding="utf-8") as answers:

        def say(message: Mapping[str, Any]) -> None:
            answers.write(json.dumps(message) + "\n")
            answers.flush()

        for line in sys.stdin:
            question = json.loads(line)
            answer = importlib.import_module(question["module"]).answer
            say({"values": answer(question["request"], lambda stage: say({"stage": stage}))})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
