"""How hard compilers may work the machine: as hard as they can while somebody waits, else without being noticed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextvars import ContextVar

low: ContextVar[bool] = ContextVar("jax_stitch_low_effort", default=False)
"""Whether nobody waits for what this thread compiles: one kernel at a time, at a low priority."""

_NICENESS = "10"
"""Beside one thread of usual priority that never rests, a compiler then gets about a tenth of a core; at 19, a 70th."""


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a compiler to its end, whatever that is, and returns its output and exit status."""
    quietly = low.get()
    nice = ("nice", "-n", _NICENESS) if quietly and shutil.which("nice") else ()
    process = subprocess.Popen(
        [*nice, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0 if quietly else None,
    )
    with process:
        if quietly:
            _quiet.add(process)
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
        finally:
            _quiet.discard(process)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def interrupt() -> None:
    """Ends the compilers that nobody waits for, with the processes they have started."""
    for process in tuple(_quiet):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


_quiet: set[subprocess.Popen[str]] = set()
