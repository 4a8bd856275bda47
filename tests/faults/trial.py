"""One trial: a function is stitched while one call to the system goes wrong. Its results must be right, the user warned
once at most, nothing left behind, and the next start well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from jax_stitch.backend.compile import build_folder, effort, host
from jax_stitch.fusion import planner
from jax_stitch.jit.programs import verdicts
from jax_stitch.jit.tiers import trial as measuring
from jax_stitch.jit.tune import worth
from jax_stitch.util.store import eviction
from tests.faults import maker
from tests.faults.ground import HANDLER, forget
from tests.faults.inject import CALLS, ERRORS, WAYS, Fault, injected

X = np.random.default_rng(0).standard_normal((16, 48)).astype(np.float32)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: jax.nn.softmax(x * 1.5, -1) + x.sum(-1, keepdims=True),
    "norm": lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-3),
    "both": lambda x: (jnp.cumsum(jnp.tanh(x), -1), x.max(0)),
}
_CALLS_IN_A_START = {"open": 16, "read": 6, "write": 4, "clock": 12, "mkdir": 4, "unlink": 3, "rename": 3, "child": 20}
"""About how many there are: later ones are not met. Of children, tenths of a second."""
STARTS = ("empty", "empty", "full", "without kernels", "without programs", "damaged")
"""What is in the cache; half the faults are met where there is something to compile."""
PLACES = ("now", "now", "now", "now", "auto", "child")
"""Where the fault is: in a process that stitches at its first call, in one that does in the background (the default),
and in the process that does it there."""
_LONG, _HANGS = 400.0, 6.0
"""Seconds in which the background must be done, and after which it is taken for hanging where it may."""


@dataclass(frozen=True)
class Trial:
    """What is done, and what goes wrong meanwhile."""

    program: str
    start: str
    place: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.program}, {self.place}, cache {self.start}: {self.fault}"

    @property
    def mode(self) -> str:
        return "now" if self.place == "now" else "auto"

    @property
    def may_hang(self) -> bool:
        """Whether the process that makes programs is to hang: calls must not, and the end of the process either."""
        return self.mode == "auto" and (self.fault.call, self.fault.way) in (("child", "hangs"), ("exec", "stalls"))


def trial_of(seed: int) -> Trial:
    """The trial of that number."""
    rng = random.Random(seed)
    call, place = rng.choice(CALLS), rng.choice(PLACES)
    way = rng.choice(WAYS.get(call, ("fails", "stalls")))
    fault = Fault(call, way, rng.randrange(_CALLS_IN_A_START.get(call, 2)), rng.choice(ERRORS))
    if call == "child":
        place = "auto"
    return Trial(rng.choice(list(PROGRAMS)), rng.choice(STARTS), place, fault)


@contextmanager
def everything_is_worth_it() -> Iterator[None]:
    """Nothing is too small to be stitched, and what is stitched stays: so that there is something to fail. Compilers
    optimise nothing and do not give way: it is quicker."""
    with (
        mock.patch.object(effort, "NICENESS", "0"),
        mock.patch.object(host, "FLAGS", ("-O0", *(flag for flag in host.FLAGS if flag != "-O3"))),
        mock.patch.object(measuring, "CLEARLY", 1e9),
        mock.patch.object(verdicts, "BAR", 0.0),
        mock.patch.object(worth, "LEAST", -1.0),
        mock.patch.object(planner, "paying", lambda _, kernels, __: tuple(kernels)),
        mock.patch.object(worth, "_COMPILE_SECONDS", float("-inf")),
    ):
        yield


class Ground:
    """The folders that trials are held in, and full caches to begin with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        os.environ[HANDLER] = str(root / "handler")
        self.maker = maker.install()
        self._full: dict[tuple[str, str], Path] = {}
        self.expected = {name: jax.tree.map(np.asarray, jax.jit(fun)(X)) for name, fun in PROGRAMS.items()}

    def full(self, program: str, mode: str) -> Path:
        """A cache that has all of a program."""
        if (program, mode) not in self._full:
            self._full[program, mode] = self.root / f"full-{program}-{mode}"
            as_new(self._full[program, mode], self.root / "temporary")
            call(program, mode)
        return self._full[program, mode]

    def held(self, trial: Trial) -> list[str]:
        """Holds a trial; returns what was wrong."""
        with everything_is_worth_it():
            return self._held(trial)

    def _held(self, trial: Trial) -> list[str]:
        cache, temporary = self._prepared(trial)
        files, children = self._open_files(), child_processes(self._own())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with self._fault(trial):
                found, state = call(trial.program, trial.mode, self.maker.interrupt if trial.may_hang else None)
        trial.fault.struck |= self.maker.struck
        wrong = self._differing(found, trial.program) + [state] * ("no end" in state)
        messages = [str(w.message) for w in seen]
        if len(messages) > 1:
            wrong.append(f"warned {len(messages)} times: {messages}")
        if trial.fault.way != "says no":  # A kernel that a compiler refuses may well be a defect.
            wrong += [f"asked to report it: {m}" for m in messages if "report" in m]
        is_killed = trial.fault.call == "child" or trial.may_hang  # The next one sweeps.
        if not is_killed and (left := sorted(os.listdir(temporary))):
            wrong.append(f"left in the temporary folder: {left}")
        if left := [str(p.relative_to(cache)) for p in cache.rglob(f"{eviction.TEMPORARY}*")]:
            if trial.fault.call not in ("unlink", "child"):  # The next process that writes removes it.
                wrong.append(f"left in the cache: {left}")
        wrong += self._next_start(trial, cache, temporary)
        return wrong + self._left(files, children)

    def _prepared(self, trial: Trial) -> tuple[Path, Path]:
        """The folders as they are when it begins, and the process that makes programs, unless its start may fail."""
        full = self.full(trial.program, trial.mode)
        cache, temporary = self.root / "cache", self.root / "temporary"
        for folder in (cache, temporary):
            shutil.rmtree(folder, ignore_errors=True)
        if trial.start == "empty":
            shutil.copytree(full / "devices", cache / "devices")
            cache.chmod(0o700)
        else:
            shutil.copytree(full, cache)
            _spoil(cache, trial.start)
        as_new(cache, temporary)
        if trial.fault.call in ("fork", "exec") and trial.place == "auto":
            self.maker.shut_down()
        self.maker.struck = False
        return cache, temporary

    @contextmanager
    def _fault(self, trial: Trial) -> Iterator[None]:
        """While it lasts, the fault is there: here, or in the process that makes programs."""
        if trial.fault.call == "child":
            timer = threading.Timer(0.1 * trial.fault.n, self._hit, [trial.fault])
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()
                for pid in self._own():  # Halted when it had answered: the next trial would ask it.
                    os.kill(int(pid), signal.SIGCONT)
        elif trial.place == "child":
            facts = {f.name: getattr(trial.fault, f.name) for f in dataclasses.fields(trial.fault) if f.init}
            # In the background compilers have ten times as long.
            hurry = {effort.TIMEOUT_VARIABLE: "0.5"} if trial.may_hang else {}
            with mock.patch.dict(os.environ, {maker.VARIABLE: json.dumps(facts)} | hurry):
                yield
        else:
            with injected(trial.fault):
                yield

    def _hit(self, fault: Fault) -> None:
        for pid in self._own():
            fault.struck = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL if fault.way == "is killed" else signal.SIGSTOP)

    def _own(self) -> set[str]:
        """The process that makes programs, if there is one."""
        child = self.maker.child
        return {str(child.pid)} if child is not None and child.alive else set()

    def _next_start(self, trial: Trial, cache: Path, temporary: Path) -> list[str]:
        as_new(cache, temporary)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found, state = call(trial.program, trial.mode)
        wrong = [f"at the next start: {w}" for w in self._differing(found, trial.program)]
        if state not in ("", "trying", "stitched"):
            wrong.append(f"at the next start it is not stitched: {state}")
        # A folder that was not yet locked when its process was killed is taken for a dead one's after a minute.
        if left := [name for name in sorted(os.listdir(temporary)) if not name.startswith(build_folder._UNLOCKED)]:
            wrong.append(f"left in the temporary folder at the next start: {left}")
        return wrong + [f"at the next start: {w.message}" for w in seen]

    def _left(self, files: int, children: set[str]) -> list[str]:
        wrong = []
        if left := child_processes(self._own()) - children:
            wrong.append(f"processes are left: {left}")
        if (more := self._open_files() - files) > 0:
            wrong.append(f"{more} files are still open")
        return wrong

    def _open_files(self) -> int:
        """How many there are, less the pipes and the log of the process that makes programs."""
        child = self.maker.child
        if child is not None and not child.alive:
            self.maker.shut_down()
        return len(os.listdir("/proc/self/fd")) - 3 * (self.maker.child is not None)

    def _differing(self, found: list[Any], program: str) -> list[str]:
        expected = jax.tree.leaves(self.expected[program])
        for result in found:
            pairs = zip(jax.tree.leaves(result), expected, strict=True)
            if not all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs):
                return ["the result is wrong"]
        return []


def as_new(cache: Path, temporary: Path) -> None:
    """What the process knows, forgotten; from now on these are its folders."""
    temporary.mkdir(exist_ok=True)
    os.environ["JAX_STITCH_CACHE_DIR"], os.environ["TMPDIR"] = str(cache), str(temporary)
    os.environ[maker.VARIABLE] = "null"
    forget()


def call(program: str, mode: str, unhang: Callable[[], None] | None = None) -> tuple[list[Any], str]:
    """Calls a function that nobody has called before, in the default mode until nothing goes on any more. Returns its
    results, and in that mode its state. With ``unhang``, it may have to be called for that to be.
    """
    made = PROGRAMS[program]

    def fresh(x: Any) -> Any:
        return made(x)

    stitched: Any = stitch_jit(fresh, mode=mode)
    found = [jax.tree.map(np.asarray, stitched(X))]
    if mode == "now":
        return found, ""
    if unhang is not None and not stitched.wait(_HANGS):
        found.append(jax.tree.map(np.asarray, stitched(X)))
        unhang()
    if not stitched.wait(_LONG):
        return found, f"it came to no end: {stitched.status()}"
    while len(found) < 40 and not stitched.status().decided:
        found.append(jax.tree.map(np.asarray, stitched(X)))
    (known,) = stitched.status().programs
    return found, known.state if known.state != "plain" else f"plain, {known.detail}"


def child_processes(known: set[str]) -> set[str]:
    """The children of this process but for ``known``, less those that are about to be gone."""
    end = time.monotonic() + 3.0
    while True:
        found = {c for p in Path("/proc/self/task").glob("*/children") for c in p.read_text().split()} - known
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


def _spoil(cache: Path, how: str) -> None:
    for kind, name in (("kernels", "without kernels"), ("programs", "without programs")):
        if how == name:
            shutil.rmtree(cache / kind)
    if how == "damaged":
        for path in sorted(path for path in cache.rglob("*") if path.is_file() and path.parent.name != "devices"):
            path.write_bytes(path.read_bytes()[:-7])
