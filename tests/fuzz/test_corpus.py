"""Programs that once failed: in ``make test`` in one way each, in this process.

The slow test runs each in every way, under a process that has not used JAX itself: one that has cannot be forked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.fuzz import judge, quickly, ways
from tests.fuzz.script import Script
from tests.fuzz.ways import WEIGHTS, Seen, Way

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
ROOT = Path(__file__).resolve().parents[2]


def failures(names: list[str], path: Path) -> list[str]:
    """Return what a program says in these ways, where it fails."""
    command = [sys.executable, "-m", "tests.fuzz", "--together", "--json", "-", "--script", str(path)]
    command += [word for name in names for word in ("--way", name)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 1, run.stderr[-3000:]
    return [
        f"{r['file']}, {r['way']}: {r['kind']} {r['signature']}\n{r['detail']}" for r in found if r["kind"] != "pass"
    ]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("path", "way"),
    [(path, ("verified", "h200-forced")[number % 2]) for number, path in enumerate(CORPUS)],
    ids=lambda given: given.stem if isinstance(given, Path) else given,
)
def test_what_once_failed(path: Path, way: str) -> None:
    """With everything stitched, for the CPU or for a GPU."""
    script = Script(path)
    with jax.enable_x64(script.x64), quickly.cheap(), quickly.kernels_together():
        fun, args = script.function(), script.arguments()
        want = judge.arrays(jax.jit(fun)(*args))
        with ways.watched(Seen(), optimised=False):
            got = Way(way, 0).run(fun, args)
        if len(got) != len(want) or not all(map(judge.close, got, want)):
            assert not judge.judge(fun, args, got, want)


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_what_once_failed_in_every_way(path: Path) -> None:
    found = failures(list(WEIGHTS), path)
    assert not found, "\n".join(found)
