"""One trial: a function is stitched while one call to the system goes wrong. Its results must be right, the user warned
once at most, nothing left behind, and the next start well.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import devices, stitch_jit
from jax_stitch.compile import host, process, scratch, toolchain
from jax_stitch.launch import host as launched
from jax_stitch.store import entries, eviction
from tests.faults.inject import CALLS, ERRORS, WAYS, Fault, injected

X = np.random.default_rng(0).standard_normal((16, 48)).astype(np.float32)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: jax.nn.softmax(x * 1.5, -1) + x.sum(-1, keepdims=True),
    "norm": lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-3),
    "both": lambda x: (jnp.cumsum(jnp.tanh(x), -1), x.max(0)),
}
_CALLS_IN_A_START = {"open": 16, "read": 6, "write": 4, "clock": 12, "mkdir": 4, "unlink": 3, "rename": 3}
"""About how many there are: later ones are not met."""
STARTS = ("empty", "empty", "full", "without kernels", "without programs", "damaged")
"""What is in the cache; half the faults are met where there is something to compile."""


@dataclass(frozen=True)
class Trial:
    """What is done, and what goes wrong meanwhile."""

    program: str
    start: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.program}, cache {self.start}: {self.fault}"


def trial_of(seed: int) -> Trial:
    """The trial of that number."""
    rng = random.Random(seed)
    call = rng.choice(CALLS)
    way = rng.choice(WAYS.get(call, ("fails", "stalls")))
    fault = Fault(call, way, rng.randrange(_CALLS_IN_A_START.get(call, 2)), rng.choice(ERRORS))
    return Trial(rng.choice(list(PROGRAMS)), rng.choice(STARTS), fault)


class Ground:
    """The folders that trials are held in, and full caches to begin with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._full: dict[str, Path] = {}
        self.expected = {name: jax.tree.map(np.asarray, jax.jit(fun)(X)) for name, fun in PROGRAMS.items()}

    def full(self, program: str) -> Path:
        """A cache that has all of a program."""
        if program not in self._full:
            self._full[program] = self.root / f"full-{program}"
            as_new(self._full[program], self.root / "temporary")
            call(program)
        return self._full[program]

    def held(self, trial: Trial) -> list[str]:
        """Holds a trial; returns what was wrong."""
        cache, temporary = self.root / "cache", self.root / "temporary"
        for folder in (cache, temporary):
            shutil.rmtree(folder, ignore_errors=True)
        if trial.start == "empty":
            shutil.copytree(self.full(trial.program) / "devices", cache / "devices")
            cache.chmod(0o700)
        else:
            shutil.copytree(self.full(trial.program), cache)
            _spoil(cache, trial.start)
        as_new(cache, temporary)
        files, children = open_files(), child_processes()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with injected(trial.fault):
                found = call(trial.program)
        wrong = _differs(found, self.expected[trial.program])
        messages = [str(w.message) for w in seen]
        if len(messages) > 1:
            wrong.append(f"warned {len(messages)} times: {messages}")
        if trial.fault.way != "says no":  # A kernel that a compiler refuses may well be a defect.
            wrong += [f"asked to report it: {m}" for m in messages if "report" in m]
        if left := sorted(os.listdir(temporary)):
            wrong.append(f"left in the temporary folder: {left}")
        if left := [str(p.relative_to(cache)) for p in cache.rglob(f"{eviction.TEMPORARY}*")]:
            if trial.fault.call != "unlink":  # The next process that writes removes it.
                wrong.append(f"left in the cache: {left}")
        if open_files() > files:
            wrong.append("a file is still open")
        if gone := child_processes() - children:
            wrong.append(f"processes are left: {gone}")
        return wrong + self._next_start(trial, cache, temporary)

    def _next_start(self, trial: Trial, cache: Path, temporary: Path) -> list[str]:
        as_new(cache, temporary)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = call(trial.program)
        wrong = [f"at the next start: {w}" for w in _differs(found, self.expected[trial.program])]
        return wrong + [f"at the next start: {w.message}" for w in seen]


def as_new(cache: Path, temporary: Path) -> None:
    """What a process knows, forgotten; but for the handler, of which XLA takes one in each process."""
    launched._handler()
    temporary.mkdir(exist_ok=True)
    os.environ["JAX_STITCH_CACHE_DIR"] = str(cache)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    for memory in (host._loaded, launched._registered, scratch._swept, entries._warned, eviction._since_look):
        memory.clear()
    toolchain._hanging.clear()
    toolchain.identity.cache_clear()
    devices.cpu.cache_clear()
    assert not process._quiet


def call(program: str) -> Any:
    """Calls a function that nobody has called before."""
    made = PROGRAMS[program]

    def fresh(x: Any) -> Any:
        return made(x)

    return jax.tree.map(np.asarray, stitch_jit(fresh)(X))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def child_processes() -> set[str]:
    """The children of this process, less those that are about to be gone."""
    end = time.monotonic() + 3.0
    while True:
        found = {c for p in Path("/proc/self/task").glob("*/children") for c in p.read_text().split()}
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


def _differs(found: Any, expected: Any) -> list[str]:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return [] if all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs) else ["the result is wrong"]


def _spoil(cache: Path, how: str) -> None:
    for kind, name in (("kernels", "without kernels"), ("programs", "without programs")):
        if how == name:
            shutil.rmtree(cache / kind)
    if how == "damaged":
        for kind in ("kernels", "programs"):
            path = sorted((cache / kind).iterdir())[0]
            path.write_bytes(path.read_bytes()[:-7])
