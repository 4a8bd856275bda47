"""What one process finds out about a program, as the next one meets it; and what is left when a process ends.

Where it is not the end of a process that counts, this one does as if it had just been started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import StitchWarning, stitch_jit
from jax_stitch.backend.launch import host as launched
from jax_stitch.jit.rebuilt.elsewhere import MAKER
from jax_stitch.jit.tiers import trial
from jax_stitch.util import store
from tests.faults.ground import HANDLER, forget
from tests.modes.conftest import LONG
from tests.seeded_cache import seeded

ROOT = Path(__file__).resolve().parents[2]
SHARED = os.environ[store.FOLDER_VARIABLE]

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax_stitch import stitch_jit
from jax_stitch.jit import lowering
from jax_stitch.jit.tiers import trial
from jax_stitch.jit.rebuilt.elsewhere import MAKER

captured, inner = [], lowering.capture
lowering.capture = lambda *args, **kwargs: captured.append(args) or inner(*args, **kwargs)
plain, stitched = map(float, sys.argv[1:3])
trial.decided = lambda *samples: trial.Times(plain, stitched) if all(samples) else None  # whatever this machine does

@stitch_jit(mode="auto")
def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

x = np.linspace(0.0, 1.0, 4096, dtype=np.float32).reshape(64, 64)
e = np.exp(x - x.max(-1, keepdims=True))
expected = e / e.sum(-1, keepdims=True)
assert np.allclose(softmax(x), expected, atol=1e-6)
print(softmax.status().programs[0].state)
assert softmax.wait(300)
while not softmax.status().decided:  # One that goes gets a second look.
    assert np.allclose(softmax(x), expected, atol=1e-6)
(found,) = softmax.status().programs
print(found.state, found.speedup, found.kernels, MAKER.child is not None)
if len(sys.argv) > 3:
    print(len(captured), "custom_call" in jax.jit(lambda x: softmax(x) + 0).lower(x).as_text())
"""


def run(cache: Path, *arguments: str) -> list[str]:
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(seeded(cache)), "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.mark.parametrize(("times", "state", "speed"), [(("2", "1"), "stitched", "2.0"), (("1", "2"), "plain", "0.5")])
def test_the_next_process_starts_with_the_verdict(times: tuple[str, str], state: str, speed: str, cache: Path) -> None:
    """From its first call on, also inside another function; it measures nothing, and starts no other process. Nor does
    it capture the function again, of which the name of the call says all: that took a third of its first call."""
    assert run(cache, *times) == ["making", f"{state} {speed} 1 True"]
    assert run(cache, "1", "1", "inside") == [state, f"{state} {speed} 1 False", f"0 {state == 'stitched'}"]


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""


Started = Callable[[Path, float, float], tuple[str, str, float | None, int, bool]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Calls a function as a new process would, whose two programs then take so long. Returns its state after the first
    call, its state, speed and kernels in the end, and whether another process was asked for a program."""
    asked: list[int] = []
    ask = MAKER.ask

    def noted(request: bytes, *rest: Any) -> Any:
        asked.append(len(request))
        return ask(request, *rest)

    monkeypatch.setenv(HANDLER, SHARED)
    monkeypatch.setattr(MAKER, "ask", noted)

    def start(cache: Path, plain: float, stitched: float) -> tuple[str, str, float | None, int, bool]:
        monkeypatch.setenv(store.FOLDER_VARIABLE, str(cache))
        monkeypatch.setattr(trial, "decided", lambda *s: trial.Times(plain, stitched) if all(s) else None)
        forget()
        launched._called.clear()
        jax.clear_caches()
        asked.clear()
        function = softmax()
        assert np.allclose(function(X), EXPECTED, atol=1e-6)
        first = str(function.status().programs[0].state)
        assert function.wait(LONG)
        end = time.monotonic() + LONG
        while not function.status().decided and time.monotonic() < end:
            assert np.allclose(function(X), EXPECTED, atol=1e-6)
        (found,) = function.status().programs
        return first, str(found.state), found.speedup, found.kernels, bool(asked)

    return start


X = np.linspace(0.0, 1.0, 4096, dtype=np.float32).reshape(64, 64)
EXPECTED = np.exp(X - X.max(-1, keepdims=True)) / np.exp(X - X.max(-1, keepdims=True)).sum(-1, keepdims=True)


def softmax() -> Any:
    """Another function each time, of the same program."""

    @stitch_jit(mode="auto")
    def softmax(x: Any) -> Any:
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return softmax


def test_a_program_that_is_gone_is_made_again(cache: Path, started: Started) -> None:
    """Evicted: nobody waits for it meanwhile, and nothing is measured again."""
    assert started(cache, 2, 1) == ("making", "stitched", 2.0, 1, True)
    assert started(cache, 1, 1) == ("stitched", "stitched", 2.0, 1, False)
    for path in (cache / "programs").iterdir():
        path.unlink()
    assert started(cache, 1, 1) == ("making", "stitched", 2.0, 1, True)


@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_a_damaged_verdict_counts_as_none(damage: bytes, cache: Path, started: Started) -> None:
    assert started(cache, 2, 1) == ("making", "stitched", 2.0, 1, True)
    for path in (cache / "verdicts").iterdir():
        path.write_bytes(damage)
    assert started(cache, 1, 2) == ("making", "plain", 0.5, 1, False)


def test_a_budget_that_is_spent_is_no_verdict(cache: Path, started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a program left plain for good, also where a later process is given more time."""
    with monkeypatch.context() as patch:
        patch.setenv("JAX_STITCH_BUDGET", "0")  # A little is enough for a process that has planned before.
        assert started(cache, 2, 1) == ("making", "plain", None, 0, True)
    assert not list(cache.glob("verdicts/*"))
    assert started(cache, 2, 1) == ("making", "stitched", 2.0, 1, True)


@pytest.fixture
def hanging_compiler(tmp_path: Path) -> str:
    """One that tells its version, and no more."""
    script = tmp_path / "compiler"
    script.write_text('#!/bin/sh\ncase "$*" in *--version*) echo hanging 1.0; exit;; esac\nexec sleep 600\n')
    script.chmod(0o755)
    return str(script)


def test_a_hanging_compiler(
    cache: Path, hanging_compiler: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls go on; one warning, no verdict that a mended compiler would not change, nothing left behind."""
    with monkeypatch.context() as patch, pytest.warns(StitchWarning) as warned:
        patch.setenv("CXX", hanging_compiler)
        patch.setenv("JAX_STITCH_COMPILE_TIMEOUT", "0.3")
        assert started(cache, 2, 1) == ("making", "plain", None, 0, True)
    assert len(warned) == 1 and not _with(hanging_compiler, command=True)
    assert started(cache, 2, 1) == ("making", "stitched", 2.0, 1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_ends_while_kernels_are_made(
    number: int, cache: Path, hanging_compiler: str, started: Started
) -> None:
    """However it ends, its child and the compilers end too, and the cache holds nothing half-written."""
    text = PROGRAM.replace("assert softmax.wait(300)", "print('waiting', flush=True); softmax.wait(300)")
    # Where the tests run in the background of a shell, interrupts are ignored.
    text = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{text}"
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(seeded(cache)), "PYTHONPATH": str(ROOT)}
    environment["CXX"] = hanging_compiler
    process = subprocess.Popen(
        [sys.executable, "-c", text, "2", "1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + LONG
    while not (at_work := _with(hanging_compiler, command=True)) and time.monotonic() < end:
        time.sleep(0.05)
    assert at_work, "a compiler was at work"
    process.send_signal(number)
    process.communicate(timeout=60)
    while (left := _with(str(cache))) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left
    assert not [path for path in cache.rglob("*") if path.name.startswith(".writing-")]
    assert started(cache, 2, 1) == ("making", "stitched", 2.0, 1, True)


def _with(text: str, command: bool = False) -> list[int]:
    """Processes that have this in their environment, or in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / ("cmdline" if command else "environ")).read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in words and state != "Z":
            found.append(int(process.name))
    return found
