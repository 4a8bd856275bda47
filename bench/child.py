"""A piece of a benchmark in a process of its own, whose end, however it comes, is only that piece's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.about import ROOT
from bench.files import write_json

TOLD = 600
"""Characters of a failure's text that are kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child found: ``values``, or the stage that it reached and why it got no further."""

    values: Mapping[str, Any] | None
    stage: str
    reason: str


def ask(module: str, request: Mapping[str, Any], environment: Mapping[str, str], limit: float) -> Answer:
    """Runs ``python -m module REQUEST RESULT`` for at most ``limit`` seconds, with these variables set."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        asked, answer, said = (Path(folder) / name for name in ("request", "answer", "said"))
        write_json(asked, dict(request))
        with said.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", module, str(asked), str(answer)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(child)
        values = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {"stage": "starting"}
        if code == 0:
            return Answer(values, "done", "")
        reason = f"ran longer than {limit:.0f} s" if code is None else f"{_ending(code)}: {_last(said)}"
        return Answer(None, values["stage"], reason)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and what it started, such as compilers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _last(said: Path) -> str:
    """The exception, or else the last lines, of what a child wrote."""
    lines = [line for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    raised = [line for line in lines if not line.startswith((" ", "Traceback", "---", "For simplicity"))]
    return " | ".join((raised or lines)[-2:])[-TOLD:]
