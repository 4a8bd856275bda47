"""One program in a process of its own, forked from one that has imported JAX but not used it."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, cast

import jax
import numpy as np

from tests.fuzz import generate, judge, probes, quickly, ways
from tests.fuzz.draft import count_equations
from tests.fuzz.program import Program, from_json, to_json
from tests.fuzz.script import Script
from tests.fuzz.signature import signature_of
from tests.fuzz.ways import Seen, Way

MEMORY, CHECKING = 26 << 30, 1 << 40
"""Bytes of address space of a process; in the checking mode, which reserves far more than it uses: a stack of 1 MB for
each thread of a launch whose blocks wait for each other.
"""

ASLEEP = 5.0
"""Times its limit that a process may take by the clock, where it has waited for a processor or for nothing at all."""

NOT_OURS = 20.0
"""Seconds of the processor for what is not our work, to run the program plain or to judge: then it is undecided."""

CHEAPLY = 0.85
"""Of the programs: run cheaply first, and judged only where results are not as good as equal (``quickly.py``)."""

OPTIMISED = 0.5
"""Of the programs: kernels are compiled with the flags that users have. The others are not optimised."""


@dataclass(frozen=True)
class Task:
    """What a process has to do: a numbered program, or a given one; some ways to run it, or ways drawn."""

    seed: int
    number: int
    program: Program | Script | None = None
    ways: tuple[Way, ...] = ()
    allowed: tuple[str, ...] = ()
    x64: bool | None = None
    without: frozenset[str] = frozenset()
    each: bool = False
    """Whether programs are about one operation, all of them in turn."""
    limit: float = 60.0
    per_program: int = 1
    prepare: Callable[[], None] | None = None
    """Called first, such as to plant a fault."""
    optimised: bool | None = None
    """Whether kernels are compiled with the flags that users have; drawn where nothing is said."""


@dataclass
class Outcome:
    """What came of it."""

    task: Task
    kind: str = "crash"
    """pass, wrong, error, crash, hang; or undecided, where plain JAX already fails or the judge takes too long."""
    signature: str = ""
    detail: str = ""
    stage: str = "start"
    program: Program | Script | None = None
    way: Way | None = None
    seconds: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.kind in ("wrong", "error", "crash", "hang")


class Process:
    """A running task: its process and what it has said so far."""

    def __init__(self, task: Task):
        self.task = task
        self.began = time.monotonic()
        self.said = b""
        read, write = os.pipe()
        log_read, log_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.folder = tempfile.mkdtemp(prefix="fuzz-")
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            os.close(log_read)
            tempfile.tempdir = os.environ["TMPDIR"] = self.folder
            _child(task, write, log_write)
        os.close(write)
        os.close(log_write)
        self.fd, self.log_fd = read, log_read
        os.set_blocking(log_read, False)
        self.log = b""

    def fileno(self) -> int:
        return self.fd

    def read(self) -> bool:
        """Takes in what it says; false once it has ended."""
        self._read_log()
        chunk = os.read(self.fd, 1 << 20)
        self.said += chunk
        return bool(chunk)

    def _read_log(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.log_fd, 1 << 16):
                self.log = (self.log + chunk)[-20000:]

    @property
    def late(self) -> bool:
        """Over its time: of the processors, so that nothing else that the machine does counts; or asleep for long."""
        seconds = time.monotonic() - self.began
        return seconds > self.task.limit and max(_worked(self.pid), seconds / ASLEEP) > self.task.limit

    def end(self, killed: bool) -> Outcome:
        """Waits for it, and says what came of it."""
        if killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)  # It says where it hangs.
                time.sleep(0.3)
                os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # A compiler that it left behind.
        self._read_log()
        os.close(self.fd)
        os.close(self.log_fd)
        shutil.rmtree(self.folder, ignore_errors=True)
        outcome = _outcome(self.task, self.said)
        outcome.seconds = time.monotonic() - self.began
        if outcome.kind != "crash":
            return outcome
        ours = outcome.stage == "stitch"
        if killed:
            outcome.kind = "hang" if ours else "undecided"
            outcome.signature = f"over {self.task.limit:.0f} s in {outcome.stage}"
            outcome.detail = self.log.decode(errors="replace")[-3000:]
        else:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            name = signal.Signals(number).name if number else f"exit {status}"
            outcome.signature, outcome.detail = name, self.log.decode(errors="replace")[-3000:]
            if not ours:
                outcome.kind, outcome.signature = "undecided", f"{name} in {outcome.stage}"
        return outcome


def _worked(pid: int) -> float:
    """Seconds that processors have spent on a process, and on those that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def run(task: Task) -> Outcome:
    """Runs one task and waits for it."""
    process = Process(task)
    while not process.late:
        ready, _, _ = select.select([process], [], [], 0.5)
        if ready and not process.read():
            return process.end(killed=False)
    return process.end(killed=True)


def _outcome(task: Task, said: bytes) -> Outcome:
    outcome = Outcome(task, program=task.program)
    for line in said.split(b"\n"):
        if not line.endswith(b"}"):
            continue
        message = json.loads(line)
        match message.pop("what"):
            case "program":
                outcome.program = from_json(message["program"])
            case "way":
                outcome.way = Way(message["name"], message["seed"])
            case "stage":
                outcome.stage = message["stage"]
            case "counts":
                outcome.counts = {k: Counter(v) for k, v in message["counts"].items()}
            case "end":
                outcome.kind, outcome.signature, outcome.detail = (
                    message["kind"],
                    message["signature"],
                    message["detail"],
                )
    return outcome


# -- in the child


def _child(task: Task, write: int, log: int) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=False)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, CHECKING))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(write, "wb", buffering=0) as channel:
            work(task, channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _program_of(task: Task) -> Program | Script:
    """The program of a task; whether numbers have 64 bits is set."""
    wide = (
        task.program.x64 if task.program else task.each is False and generate.is_wide(task.seed, task.number, task.x64)
    )
    jax.config.update("jax_enable_x64", wide)
    if task.program is not None:
        return task.program
    if task.each:
        return generate.each(task.seed, task.number)
    return generate.program(task.seed, task.number, x64=task.x64, without=task.without)


class _Told:
    """What a process says of its work as it goes."""

    def __init__(self, channel: BinaryIO):
        self._channel = channel
        self._at = ("start", time.monotonic())
        self._seconds: dict[str, float] = defaultdict(float)
        self.counts: dict[str, Counter[str]] = {"seconds": cast("Counter[str]", self._seconds)}

    def say(self, what: str, **content: Any) -> None:
        self._channel.write(json.dumps({"what": what, **content}).encode() + b"\n")

    def stage(self, name: str) -> None:
        now = time.monotonic()
        self._seconds[self._at[0]] += now - self._at[1]
        self._at = (name, now)
        signal.setitimer(signal.ITIMER_PROF, NOT_OURS if name in ("plain", "judge") else 0.0)
        self.say("stage", stage=name)

    def end(self, kind: str, signature: str = "", detail: str = "") -> None:
        self.stage("end")
        self.counts["reached"] = Counter(dict.fromkeys(probes.REACHED, 1))
        self.say("counts", counts={k: dict(v) for k, v in self.counts.items()})
        self.say("end", kind=kind, signature=signature, detail=detail)


class _Ended(Exception):
    """There is a verdict: its kind, its signature, and more."""


class _Long(Exception):
    """What is not our work took too long."""


def _stop(*_: Any) -> None:
    raise _Long


def work(task: Task, channel: BinaryIO) -> None:
    """Makes the program, runs it plain and stitched, judges, and tells of each step."""
    told = _Told(channel)
    signal.signal(signal.SIGPROF, _stop)
    if task.prepare is not None:
        task.prepare()
    told.stage("generate")
    program = _program_of(task)
    if isinstance(program, Program):
        told.say("program", program=to_json(program))
    rng = Random(f"ways {task.seed}:{task.number}")
    drawn = task.ways or tuple(ways.draw(rng, task.allowed) for _ in range(task.per_program))
    optimised = task.optimised
    if optimised is None:
        optimised = Random(f"flags {task.seed}:{task.number}").random() < OPTIMISED
    told.counts.update(kernels=Counter({"optimised" if optimised else "not optimised": 1}), judged=Counter())
    try:
        if not task.ways and rng.random() < CHEAPLY:
            with quickly.cheap():
                differ = _run(told, program, drawn, optimised=optimised, judged=False)
            told.counts["judged"]["as good as equal" if not differ else "run again"] += 1
            if not differ:
                return told.end("pass")
        _run(told, program, drawn, optimised=optimised, judged=True)
    except _Ended as verdict:
        return told.end(*verdict.args)
    except _Long:
        return told.end("undecided", f"over {NOT_OURS:.0f} s in what is not ours")
    return told.end("pass")


def _run(told: _Told, program: Program | Script, drawn: Sequence[Way], *, optimised: bool, judged: bool) -> bool:
    """Runs a program plain and in these ways. Returns whether results differ by more than a little; or has them
    judged, and raises ``_Ended`` where one is wrong."""
    seen = Seen()
    told.stage("plain")
    try:
        fun, args = program.function(), program.arguments()
        want = judge.arrays(jax.jit(fun)(*args))
        found = Counter[str]()
        count_equations(jax.make_jaxpr(fun)(*args).jaxpr, found)
    except Exception as failure:
        raise _Ended("undecided", f"plain: {type(failure).__name__}", str(failure)[:500]) from failure
    told.counts.update(operations=Counter(program.operations), primitives=found)
    told.counts.update(opcodes=seen.opcodes, parts=seen.parts, fallbacks=seen.fallbacks, ways=Counter())
    for way in drawn:
        told.counts["ways"][way.name] += 1
        told.say("way", name=way.name, seed=way.seed)
        told.stage("stitch")
        got = _stitched(fun, args, way, seen, optimised)
        told.stage("judge")
        if not judged:
            if len(got) != len(want) or not all(map(judge.close, got, want)):
                return True
            continue
        try:
            wrong = judge.judge(fun, args, got, want)
        except Exception as failure:
            place = traceback.extract_tb(failure.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            said = f"judge: {type(failure).__name__} at {where}"
            raise _Ended("undecided", said, traceback.format_exc()[-3000:]) from failure
        if wrong:
            raise _Ended("wrong", "wrong result", "\n".join(w.message for w in wrong))
    return False


def _stitched(
    fun: Callable[..., Any], args: Sequence[np.ndarray], way: Way, seen: Seen, optimised: bool
) -> list[np.ndarray]:
    if way.name == "checked":
        resource.setrlimit(resource.RLIMIT_AS, (CHECKING, CHECKING))
    try:
        with ways.watched(seen, optimised=optimised), quickly.kernels_together():
            return way.run(fun, args)
    except ways.NotLowered as failure:
        said = f"plain: {type(failure.__cause__).__name__}"
        raise _Ended("undecided", said, str(failure)[:500]) from failure
    except Exception as failure:
        said = "".join(traceback.format_exception(failure))[-4000:]
        raise _Ended("error", signature_of(failure), said) from failure


def again(outcome: Outcome, program: Program, limit: float) -> Task:
    """The task of running a program in the way that failed."""
    assert outcome.way is not None
    return replace(outcome.task, program=program, ways=(outcome.way,), limit=limit)


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs fail alike."""
    return one.kind == other.kind and (one.signature == other.signature or one.kind in ("wrong", "crash"))
