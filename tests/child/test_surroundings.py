"""What a child process takes from where it is started, and what becomes of it when its parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_stitch.backend.compile import effort, process, toolchain
from jax_stitch.frontend.capture.client import COMPILER
from jax_stitch.jit.rebuilt import elsewhere
from jax_stitch.util import tools
from jax_stitch.util.child import Keeper, encode

CAPTURE, MAKER = "jax_stitch.frontend.capture.worker", "jax_stitch.jit.stitching.maker"
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
PLANTED = "import pathlib; pathlib.Path(__file__).with_name('ran').write_text(__name__)\nraise ImportError('planted')\n"


def plant(folder: Path) -> None:
    """Modules of the working folder that would be imported in place of the libraries'."""
    for name in ("tokenize", "json", "jax", "sitecustomize", "numpy"):
        (folder / f"{name}.py").write_text(PLANTED)


def answers(keeper: Keeper) -> bool:
    """Whether the compiler process is there to say what it has against a request."""
    try:
        return keeper.ask(encode({"target_config": "", "options": []}, b""), 120)[0] == {"ok": False}
    finally:
        keeper.shut_down()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux shows them")
def test_the_planner_has_no_threads_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that plans and the one that watches for its parent: NumPy's linear algebra makes one for each core."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    keeper = Keeper(MAKER, elsewhere._ENVIRONMENT)
    try:
        reply, _ = keeper.ask(encode({"log": 30, "budget": None, "memory": None}), 120)
        assert reply["outcome"] == "failed" and keeper.child is not None
        assert len(list(Path(f"/proc/{keeper.child.pid}/task").iterdir())) == 2
    finally:
        keeper.shut_down()


def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m`` puts it first: a file of that name in a shared folder ran as whoever worked there."""
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert answers(Keeper(CAPTURE, ENVIRONMENT))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("folder", ["", ".", "relative"])
def test_nor_from_a_path_that_depends_on_it(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parent's path has of that kind meant the folder that it was started in."""
    (tmp_path / "relative").mkdir()
    for place in (tmp_path, tmp_path / "relative"):
        plant(place)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    assert answers(Keeper(CAPTURE, ENVIRONMENT))
    assert not list(tmp_path.rglob("ran"))


def test_no_program_of_the_working_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a dot on PATH, as some people have it: a ``nice`` that lay there ran before each planner and compiler."""
    for name in ("nice", "c++", "addr2line"):
        (tmp_path / name).write_text(f'#!/bin/sh\ntouch "{tmp_path}/ran"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([".", "", *os.environ["PATH"].split(os.pathsep)]))
    monkeypatch.delenv("CXX", raising=False)
    token = effort.low.set(True)
    try:
        process.run([*toolchain.compiler(), "--version"])
    finally:
        effort.low.reset(token)
    assert answers(Keeper(CAPTURE, ENVIRONMENT, niceness=5))
    assert all(os.path.isabs(tools.find(name) or "/") for name in ("nice", "addr2line"))
    assert not (tmp_path / "ran").exists()


def test_it_finds_this_package_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that the parent found by its working folder, which is another one by now."""
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(p for p in sys.path if p != root)])
    assert answers(Keeper(CAPTURE, ENVIRONMENT))


def test_all_children_are_started_alike() -> None:
    """Another way to start a Python process would need the same care."""
    package = Path(__file__).resolve().parents[2] / "jax_stitch"
    starting = {p.relative_to(package).as_posix() for p in package.rglob("*.py") if "sys.executable" in p.read_text()}
    assert starting == {"util/child/process.py"}
    assert COMPILER.child is None or COMPILER.child.pid


BUSY = """
import os, sys, time
from jax_stitch.util.child import serve

def answer(header, payload):
    open(header["started"], "w").write(str(os.getpid()))
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)

serve(answer)
"""

PARENT = """
import sys
from jax_stitch.util.child import Keeper, encode
sys.path.insert(0, sys.argv[1])
Keeper("busy_child", {}).ask(encode({"started": sys.argv[2]}), 600)
"""


def test_one_at_work_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """It reads its pipe between two requests only, and one may take an hour: killed parents left planners behind."""
    (tmp_path / "busy_child.py").write_text(BUSY)
    started = tmp_path / "started"
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(started)]
    parent = subprocess.Popen(command, env=os.environ | ENVIRONMENT | {"PYTHONPATH": root})
    try:
        until(lambda: started.exists() and started.read_text() != "", 60)
        child = int(started.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: not group_is_alive(child), 30)


SLOW_TO_IMPORT = """
import os, sys, time
open(os.environ["STARTED"], "w").write(str(os.getpid()))
time.sleep(600)
"""


def test_nor_does_one_that_is_still_being_imported(tmp_path: Path) -> None:
    """JAX takes seconds to import, and minutes at an idle priority on a busy machine: the soak found five of these."""
    (tmp_path / "busy_child.py").write_text(SLOW_TO_IMPORT)
    started = tmp_path / "started"
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(started)]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": root, "STARTED": str(started)}
    parent = subprocess.Popen(command, env=environment)
    try:
        until(lambda: started.exists() and started.read_text() != "", 60)
        child = int(started.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: not group_is_alive(child), 30)


def group_is_alive(group: int) -> bool:
    """Whether any process of a group still runs; dead ones that nobody has waited for do not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


def until(happened, seconds: float) -> None:
    """Waits for something, for so long at most."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
