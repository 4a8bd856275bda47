"""Several processes and one cache: one after another, side by side, and killed at any moment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jax_stitch.util import store
from jax_stitch.util.store.entries import DAMAGED
from jax_stitch.util.store.eviction import TEMPORARY
from jax_stitch.util.store.location import KINDS
from tests.seeded_cache import seeded

ROOT = Path(__file__).resolve().parents[2]
STEP = Path(__file__).with_name("step.py")


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that stitches two functions, with both caches in one folder."""
    settings = {
        "PYTHONPATH": str(ROOT),
        "JAX_STITCH_CACHE_DIR": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, str(STEP)],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process that was not killed said."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(out)


Made = tuple[dict[str, Any], Path]
SHARED = pytest.mark.xdist_group("first_process")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What the first process of all says, and the folder that it leaves. A folder's path is part of JAX's own keys."""
    folder = tmp_path_factory.mktemp("first") / "cache"
    return finished(start(folder, PYTHONHASHSEED="1")), folder


@SHARED
def test_a_second_process_makes_nothing(first: Made) -> None:
    """No analysis, no plan, no kernel; and JAX's own cache knows the rebuilt program."""
    said, folder = first
    assert said["compiled"] > 0 and said["misses"] > 0 and said["planner"]
    second = finished(start(folder))
    assert second["compiled"] == second["misses"] == 0 and second["hits"] > 0
    assert not second["planner"], "the planner was imported"


@SHARED
def test_every_process_makes_the_same(first: Made, tmp_path: Path) -> None:
    """No address, no order of a set, no folder is part of a program or a kernel."""
    other = seeded(tmp_path / "2")
    given = {p.name for p in (other / "kernels").iterdir()}
    # What a machine is taken for is measured once.
    if (first[1] / "devices").exists():  # A described CPU is not measured.
        shutil.copytree(first[1] / "devices", other / "devices", dirs_exist_ok=True)
    finished(start(other, PYTHONHASHSEED="2"))
    made = []
    for folder in (first[1], other):
        made.append({p.name: p.read_bytes() for p in sorted((folder / "programs").iterdir())})
        made[-1] |= {p.name: b"" for p in (folder / "kernels").iterdir() if p.name not in given}
    assert made[0].keys() == made[1].keys()
    assert made[0] == made[1]


FILL = """
import os, random, sys
from jax_stitch.util import store

def fill():
    while True:
        n = random.randrange(8)
        content = bytes([n]) * (n * 500_000 + 10)
        found = store.read_or_build("kernels", f"entry{n}", lambda: content)
        assert found == content, "a broken entry was read"
        if random.random() < 0.3:
            store.write("kernels", f"entry{n}", content)

for _ in sys.stdin:  # Forks: to import the package takes longer than they live.
    for _ in range(4):
        if (child := os.fork()) == 0:
            fill()
        print(child, flush=True)
    print(sorted(os.wait()[1] for _ in range(4)), flush=True)
"""


def test_killed_while_writing(cache: Path) -> None:
    """Whatever moment a process dies at, an entry is sound or missing."""
    moments = random.Random(0)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FILL],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    for _ in range(3):
        process.stdin.write("once more\n")
        process.stdin.flush()
        for child in [int(process.stdout.readline()) for _ in range(4)]:
            time.sleep(moments.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
        assert process.stdout.readline() == f"{[int(signal.SIGKILL)] * 4}\n"
        check(cache)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    for n in range(8):
        content = store.read("kernels", f"entry{n}")
        assert content is None or content == bytes([n]) * (n * 500_000 + 10)


@pytest.mark.slow
def test_killed_while_stitching(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 times, four processes that stitch die at random moments; the next one must get through each time."""
    begin = time.monotonic()
    finished(start(cache))
    duration = time.monotonic() - begin
    moments = random.Random(1)
    died = 0
    for n in range(50):
        folder = cache / f"round{n}"
        monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(folder))
        begin = time.monotonic()
        processes = [start(folder) for _ in range(4)]
        for process in processes:  # Four at once take longer than one.
            time.sleep(max(0.0, begin + duration * moments.uniform(0.2, 3.0) - time.monotonic()))
            process.send_signal(signal.SIGKILL)
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode in (0, -signal.SIGKILL), errors
            died += process.returncode != 0
        check(folder)
        finished(start(folder))
        check(folder)
    assert died > 50, "they were done before they could be killed"


def check(folder: Path) -> None:
    """No entry is broken, and no process has found one that was."""
    for kind in KINDS:
        for path in (folder / kind).glob("*"):
            assert not path.name.endswith(DAMAGED), "a process read a broken entry"
            assert path.name.startswith(TEMPORARY) or store.read(kind, path.name) is not None
