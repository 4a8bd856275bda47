"""One function in a process of its own, from its first call until nothing more goes on: what ``first_minute`` starts.

``python -m bench.first_minute.worker KIND NAME SIZE``, where the kind is "jit", "auto", one of these with "again" (a
later process with the same caches), or "planned" (only that, beside XLA's compilation); prints its figures as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bench.first_minute import growth, programs
from bench.small.made import Made
from bench.workloads import ALL
from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import effort
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.programs.record import NotWorthStitching
from jax_stitch.jit.rebuilt.elsewhere import MAKER
from jax_stitch.jit.stitching.make import stitched
from jax_stitch.jit.stitching.model import SentProgram
from jax_stitch.jit.tune.worth import check_worth
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName

_LIMIT = 240.0
"""Seconds after which it is no longer waited for a verdict."""
_PAUSE = 0.004
"""Least seconds between two calls: a user's program does something else as well."""
_AFTER, _PAIRS = 1.0, 20
"""Seconds of calls in turn after the verdict, and pairs of calls at least: the median of fewer is noise."""


def first(function: Callable[..., Any], args: Sequence[Any]) -> dict[str, float]:
    """The first call: seconds, and processor time of the whole process."""
    start, work = time.perf_counter(), time.process_time()
    jax.block_until_ready(function(*args))
    return {"first": time.perf_counter() - start, "first_work": time.process_time() - work}


def until_settled(function: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Calls until the verdict is there: what they took, and what went into it besides them."""
    start, work, calls = time.perf_counter(), time.process_time() + children(), 0.0
    durations: list[float] = []
    waits = not function.wait(0)
    while not function.status().decided and time.perf_counter() - start < _LIMIT:
        before, before_work = time.perf_counter(), time.process_time()
        jax.block_until_ready(function(*args))
        taken = time.perf_counter() - before
        calls += time.process_time() - before_work
        if function.wait(0):  # The trial is of calls as they come after it, one upon the other.
            continue
        if waits:
            durations.append(taken)
        time.sleep(max(_PAUSE, taken))
    (program,) = function.status().programs
    return {
        "settled": time.perf_counter() - start,
        "work": time.process_time() + children() - work - calls,
        "state": program.state,
        "detail": program.detail,
        "kernels": program.kernels,
        "meanwhile": summary(durations),
    }


def children() -> float:
    """Processor time of the process that makes kernels, with its compilers, and of those that have ended."""
    ended = os.times()
    found = ended.children_user + ended.children_system
    if MAKER.child is not None and MAKER.child.alive:
        words = Path(f"/proc/{MAKER.child.pid}/stat").read_text().rpartition(")")[2].split()
        found += sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def summary(durations: Sequence[float]) -> dict[str, float]:
    """Of calls: how many, their median, and the part that took more than twice that."""
    if not durations:
        return {"count": 0, "median": 0.0, "slow": 0.0}
    median = statistics.median(durations)
    slow = sum(taken > 2 * median for taken in durations) / len(durations)
    return {"count": len(durations), "median": median, "slow": slow}


def in_turn(function: Any, plain: Any, args: Sequence[Any]) -> float:
    """Time of ``jax.jit`` over that of what was settled on, called in turn: the median of the pairs' ratios."""
    functions = (plain, function)
    ratios: list[float] = []
    for each in functions:
        jax.block_until_ready(each(*args))
    end = time.perf_counter() + _AFTER
    while time.perf_counter() < end or len(ratios) < _PAIRS:
        taken = {}
        for each in functions if len(ratios) % 2 else functions[::-1]:
            start = time.perf_counter()
            jax.block_until_ready(each(*args))
            taken[each] = time.perf_counter() - start
        ratios.append(taken[plain] / taken[function])
    return statistics.median(ratios)


def planned(fun: Callable[..., Any], args: Sequence[Any]) -> dict[str, float]:
    """Processor time of XLA's compilation, and of planning alone as the default mode plans: to the kernels' text; and
    the operations of XLA's program.
    """
    device = devices.get("cpu")
    _plan(jax.nn.softmax, (jnp.ones((8, 8)),), device)  # What is imported for that stays.
    return _plan(fun, args, device)


def _plan(fun: Callable[..., Any], args: Sequence[Any], device: devices.Device) -> dict[str, float]:
    captured = capture(fun, args, device)
    start = time.process_time()
    text = captured.text  # XLA compiles it now.
    xla = time.process_time() - start
    program = SentProgram(captured.name, device, text, captured.homes, (), (), seconds=0.0, xla_seconds=xla)
    gc.collect()
    gc.freeze()  # The process that plans has nothing but the program.
    start = time.process_time()
    with contextlib.suppress(NotWorthStitching):
        check_worth(program, device)
        seconds = effort.planning.get() * max(time.process_time() - start, xla)
        stitched(program, device, device, PlannerName.BEAM, "", Autotune.OFF, seconds=seconds)
    planning = time.process_time() - start
    return {"xla": xla, "planning": planning, "operations": sum(" = " in line for line in text.splitlines())}


def made(name: str, size: str) -> Made:
    """A program's function and its arguments."""
    if name in ALL:
        return ALL[name].make(tuple(json.loads(size)), jnp.float32)
    return growth.made(name) if name in growth.names() else programs.made(name)


def main(kind: str, name: str, size: str) -> None:
    fun, args = made(name, size)
    jax.block_until_ready((args, jax.jit(lambda x: x + 1)(jnp.ones(3))))  # XLA is there.
    if kind == "planned":
        print(json.dumps(planned(fun, args)))
        return
    plain = jax.jit(fun)
    function: Any = plain if kind.startswith("jit") else stitch_jit(fun, mode="auto")
    found: dict[str, Any] = first(function, args)
    if kind == "jit":
        found["calls"] = summary(alone(plain, args))
    elif kind == "auto":
        found |= until_settled(function, args)
        found["after"] = in_turn(function, plain, args)
    elif kind == "again":
        found["state"] = function.status().programs[0].state
    print(json.dumps(found))


def alone(plain: Callable[..., Any], args: Sequence[Any]) -> list[float]:
    """What calls of ``jax.jit`` take that nothing goes on beside."""
    durations: list[float] = []
    end = time.perf_counter() + 2.0
    while time.perf_counter() < end:
        before = time.perf_counter()
        jax.block_until_ready(plain(*args))
        durations.append(time.perf_counter() - before)
        time.sleep(max(_PAUSE, durations[-1]))
    return durations


if __name__ == "__main__":
    main(*sys.argv[1:])
