"""The two editions: this tree, and an earlier commit in a worktree of its own beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.about import ROOT

FIRST = "fd700fb"
"""The last commit before the redesign, and so one of which all facts can be gathered."""
FOLDER = ROOT / "build" / "witness"
SIDES = ("before", "after")
_CHILD = Path(__file__).resolve().parent / "child"
NICENESS = 5


_KEPT_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
}
"""What glibc is told, so that it keeps what a call frees: whether the next call touches all pages anew, which takes
longer than most kernels here, is chance in each process, and has nothing to do with the edition."""


@dataclass(frozen=True, slots=True)
class Edition:
    """One side: where its package lies, and at which commit."""

    side: str
    root: Path
    commit: str

    def environment(self) -> dict[str, str]:
        """Of a process that runs this edition."""
        return os.environ | {
            "PYTHONPATH": str(self.root),
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "JAX_STITCH_LOG": "off",
            "JAX_STITCH_MODE": "now",
            "JAX_STITCH_CACHE_DIR": str(FOLDER / f"cache-{self.side}"),
            **_KEPT_MEMORY,
        }

    def command(self, script: str, *arguments: str) -> list[str]:
        return [sys.executable, str(_CHILD / script), *arguments]


def git(*arguments: str, root: Path = ROOT) -> str:
    """What a git command says."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def editions(before: str) -> Iterator[tuple[Edition, Edition]]:
    """Both, while the worktree of the earlier one is there: a name of a commit may have moved since it was made."""
    commit = git("rev-parse", "--short=7", f"{before}^{{commit}}")
    root = FOLDER / "before"
    if not root.exists():
        git("worktree", "prune")
        git("worktree", "add", "--detach", "--force", str(root), commit)
    try:
        if git("rev-parse", "--short=7", "HEAD", root=root) != commit:
            git("checkout", "--detach", "--force", commit, root=root)
        here = git("describe", "--always", "--dirty", "--abbrev=7", "--exclude=*")
        yield Edition("before", root, commit), Edition("after", ROOT, here)
    finally:
        git("worktree", "remove", "--force", str(root))


def ended(edition: Edition, command: Sequence[str], limit: float, log: Path) -> str:
    """Runs a child at a low priority; empty where all went well, else why not."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as said:
        process = subprocess.Popen(
            ["nice", "-n", str(NICENESS), *command],
            cwd=edition.root,
            env=edition.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"took longer than {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "" if code == 0 else f"exit status {code}: {' '.join(lines[-1:])[-300:]}"


class Asked:
    """A child that answers lines of JSON with lines of JSON."""

    def __init__(self, edition: Edition, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            edition.command(script, *arguments),
            cwd=edition.root,
            env=edition.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, **question: object) -> dict[str, float]:
        """The answer. Raises ``RuntimeError`` where the child has ended."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        try:
            to.write(json.dumps(question) + "\n")
            to.flush()
        except BrokenPipeError:
            raise RuntimeError("it has ended") from None
        return _answer(answers)

    def wait(self) -> None:
        """Until it is ready. Raises ``RuntimeError`` where it ends instead."""
        assert self._process.stdout is not None
        _answer(self._process.stdout)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _answer(lines: IO[str]) -> dict[str, float]:
    for line in lines:
        if line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError("it has ended")
