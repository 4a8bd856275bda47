"""Work that nobody waits for ends where it takes more processor time or memory than it is given."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.jit.rebuilt import elsewhere
from jax_stitch.jit.stitching import budget
from jax_stitch.jit.stitching.budget import BudgetSpent, within
from tests.modes.conftest import LONG

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def busy(seconds: float) -> None:
    """For so long of the processor: by the clock, a busy machine would do nearly nothing."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def test_each_has_its_end_and_none_goes_on() -> None:
    """A timer that outlived its work ended other work."""
    with pytest.raises(BudgetSpent, match="time"), within(0.1):
        busy(LONG)
    with pytest.raises(BudgetSpent, match="memory"), within(None, memory=1):
        busy(LONG)
    with within(LONG, memory=1 << 50):
        busy(0.7)
    with within(None):
        busy(0.7)


def test_it_is_an_end_where_the_first_was_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in JAX's own callback of the garbage collection: the work went on without an end."""

    class Finalised:
        def __del__(self) -> None:
            busy(0.3)

    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: ignored.append(found.exc_type))
    with pytest.raises(BudgetSpent, match="time"), within(0.1):
        Finalised()
        busy(LONG)
    assert ignored == [BudgetSpent]


def test_memory_of_what_it_has_started_counts() -> None:
    """A C++ compiler may take a gigabyte for one kernel."""
    held = budget._held(os.getpid())
    command = [sys.executable, "-c", "held = bytearray(200 << 20); print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert budget._held(os.getpid()) > held + (200 << 20)
        process.stdin.close()


def test_a_function_that_takes_too_much_memory_stays_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared machine, planning in the background took what others needed; the note says what to do."""
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    for limit in ("_MEMORY", "_SHARE"):
        monkeypatch.setattr(elsewhere, limit, -(1 << 50))

    def long(x: Any) -> Any:
        for k in range(12):
            x = jax.nn.softmax(x * (k + 1.25), k % 2) + jax.numpy.sin(x).sum(k % 2, keepdims=True) / (k + 40)
        return x

    for _ in range(2):  # The second finds the verdict.
        function: Any = stitch_jit(long, mode="auto")
        np.testing.assert_allclose(function(X), long(X), rtol=1e-4, atol=1e-4)
        assert function.wait(LONG)
        (program,) = function.status().programs
        assert program.state == "plain" and "of memory: JAX_STITCH_BUDGET=inf" in program.detail
