"""The end of a process, and a fork of it, while it works in the background."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modes.conftest import LONG
from tests.seeded_cache import seeded

ROOT = Path(__file__).resolve().parents[2]

START = """
import sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax_stitch import stitch_jit

@stitch_jit(mode="async")
def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

x = np.linspace(0.0, 1.0, 4096, dtype=np.float32).reshape(64, 64)
e = np.exp(x - x.max(-1, keepdims=True))
expected = e / e.sum(-1, keepdims=True)

def stack():
    "The functions that the background thread is in."
    names = {thread.name: thread.ident for thread in threading.enumerate()}
    frame, found = sys._current_frames().get(names.get("jax-stitch-background")), []
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found
"""

CALL = "assert np.allclose(softmax(x), expected)"

HOLD = """
from jax_stitch.jit.rebuilt import background

class Holder:
    "Keeps the background thread busy."
    held = threading.Event()
    def run(self): self.held.wait()
    def abandon(self, forked): pass

holder = Holder()
background.submit(holder)
"""

FORK = """
import os, signal
child = os.fork()
if child == 0:
    signal.alarm(60)  # In place of a hang.
    os._exit(0 if softmax.wait(30) and background._thread is None else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
holder.held.set()
assert softmax.wait(300)
"""


def run(text: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(seeded(cache)), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *("-W", "ignore::RuntimeWarning", "-W", "ignore::DeprecationWarning"), "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


ALONE = """
import sys
sys.frozen = True  # There is no interpreter for a child process.
"""


@pytest.mark.parametrize(
    ("setting", "moment"),
    [("", None), ("", "_plan"), ("", "_exchange"), (ALONE, "backend_compile_and_load"), (ALONE, "communicate")],
)
def test_a_process_may_end_at_any_moment(setting: str, moment: str | None, tmp_path: Path) -> None:
    """At once, in our own code, while the child works, or in its place XLA or the C++ compiler; quietly, and nothing
    stays behind."""
    # On a busy machine the moment may pass between two looks.
    wait = "" if moment is None else f"while {moment!r} not in stack() and not softmax.wait(0): time.sleep(0.001)\n"
    found = run(f"{setting}\n{START}\n{CALL}\n{wait}print('end')", tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, "end\n", "")
    assert not list(tmp_path.rglob("*.tmp")) and not list(tmp_path.rglob(".*"))


def test_a_fork_does_not_wait_for_its_parent(tmp_path: Path) -> None:
    found = run("\n".join((START, HOLD, CALL, FORK, CALL)), tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
