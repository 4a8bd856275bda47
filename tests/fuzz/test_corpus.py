"""Programs that once failed, each in every way in a process of its own.

They run under a process that has not used JAX itself: one that has cannot be forked. The fast test runs each file
with everything stitched, for the CPU or for a GPU; the slow one in every way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.ways import WEIGHTS

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
ROOT = Path(__file__).resolve().parents[2]


def failures(ways: list[str], files: list[Path], how: str = "--together") -> list[str]:
    """What each program says in these ways, where it fails."""
    command = [sys.executable, "-m", "tests.fuzz", how, "--json", "-"]
    command += [a for w in ways for a in ("--way", w)] + [a for f in files for a in ("--script", str(f))]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(files), run.stderr[-3000:]
    return [
        f"{r['file']}, {r['way']}: {r['kind']} {r['signature']}\n{r['detail']}" for r in found if r["kind"] != "pass"
    ]


def test_what_once_failed() -> None:
    found = failures(["verified", "h200-forced"], CORPUS, "--in-turn")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_what_once_failed_in_every_way(path: Path) -> None:
    found = failures(list(WEIGHTS), [path])
    assert not found, "\n".join(found)
