"""Workers: what ends one of them ends nothing else, and is told."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.worker import Worker

PIECE = """
import os, subprocess, sys, time

def answer(request, tell):
    tell("thinking")
    match request["do"]:
        case "abort": os.abort()
        case "raise": raise ValueError("no such thing")
        case "hang":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            open(request["file"], "w").write(str(child.pid))
            time.sleep(60)
        case "print": print("chatter\\n" * 5000)
    return {"pid": os.getpid(), "variable": os.environ.get("BENCH_TEST")}
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "piece.py").write_text(textwrap.dedent(PIECE), encoding="utf-8")
    with Worker({"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "BENCH_TEST": "here"}) as found:
        yield found


def test_one_process_answers_again_and_again(worker: Worker) -> None:
    first, second = (worker.ask("piece", {"do": how}, 30) for how in ("nothing", "print"))
    assert first.values is not None and second.values is not None
    assert first.values["pid"] == second.values["pid"] != os.getpid()
    assert first.values["variable"] == "here"


@pytest.mark.parametrize(
    ("do", "told"), [("abort", "ended by SIGABRT"), ("raise", "exit status 1: ValueError: no such thing")]
)
def test_a_failure_is_told_and_the_next_question_answered(worker: Worker, do: str, told: str) -> None:
    failed = worker.ask("piece", {"do": do}, 30)
    assert failed.values is None and failed.stage == "thinking" and told in failed.reason
    assert worker.ask("piece", {"do": "nothing"}, 30).values is not None


def test_what_takes_too_long_is_ended_with_all_it_started(worker: Worker, tmp_path: Path) -> None:
    worker.ask("piece", {"do": "nothing"}, 30)
    file, start = tmp_path / "child", time.monotonic()
    failed = worker.ask("piece", {"do": "hang", "file": str(file)}, 2)
    assert failed.values is None and "ran longer than 2 s" in failed.reason
    assert time.monotonic() - start < 20
    while _runs(int(file.read_text(encoding="utf-8"))):  # The system ends it in its own time.
        assert time.monotonic() - start < 20
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except FileNotFoundError:
        return False
