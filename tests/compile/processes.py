"""What the tests of compilers share: scripts in place of one, and the processes that are left."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from jax_stitch.backend.compile import toolchain


def stand_in(folder: Path, body: str) -> str:
    """A compiler for ``$CXX`` that tells a version and then does what the shell script says; ``$real`` is the real
    one."""
    script = folder / "stand-in c++"
    real = shlex.join(toolchain.compiler())
    script.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo version; exit;; esac\nreal="{real}"\n{body}\n')
    script.chmod(0o755)
    return shlex.quote(str(script))


def running(word: str) -> list[int]:
    """The processes whose command line holds a word, less those that have ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(happened: Callable[[], object], seconds: float = 30.0) -> None:
    """Waits for something, for so long at most."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
