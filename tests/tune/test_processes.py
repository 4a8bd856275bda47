"""Several processes and one library: what one has measured no other measures, at once or later."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def start(cache: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.tune.step"],
        cwd=ROOT,
        env=os.environ | {"JAX_STITCH_CACHE_DIR": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    return process


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate("\n", timeout=300)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


@pytest.mark.slow
def test_the_second_process_measures_nothing(tmp_path: Path) -> None:
    first = finished(start(tmp_path))
    assert len(first["measured"]) >= 2 and first["by_plan"] == 0
    second = finished(start(tmp_path))  # finds the program
    assert second["measured"] == [] and second["kernels"] == first["kernels"]
    shutil.rmtree(tmp_path / "programs")
    third = finished(start(tmp_path))  # plans, and finds the times
    assert third["measured"] == [] and third["kernels"] == first["kernels"]


@pytest.mark.slow
def test_four_processes_at_once_measure_what_one_would(tmp_path: Path) -> None:
    finished(start(tmp_path))  # compiles what all of them need
    for folder in ("programs", "library"):
        shutil.rmtree(tmp_path / folder)
    processes = [start(tmp_path) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [finished(process) for process in processes]
    measured = [key for f in found for key in f["measured"]]
    assert measured and len(set(measured)) == len(measured), "what one measured another measured too"
    assert len({json.dumps(f["kernels"]) for f in found}) == 1
