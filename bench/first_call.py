"""``python -m bench.first_call``: what callers wait for under ``mode="async"``, beside ``jax.jit``.

That is the first result, and every call while the stitched program is made, at the swap and after it.

Each round takes each workload under ``jax.jit`` and "async", in turns the one or the other first, and "now", as a
function that nothing has compiled before (its results are scaled by a number of its own). All is in one process, so
that what else the machine does slows all of them; ``jax.jit`` is called for as long as the asynchronous function was,
for its own slowest calls, and again beside a process that computes whenever a core has nothing else to do: what
another process costs by itself, whatever it does.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from jax_stitch import stitch_jit
from jax_stitch.demo.block import make_training_step
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

FIRST_BAR, SLOW_BAR = 1.1, 2.0
"""First result over that of ``jax.jit``; a call over the median call of ``jax.jit``."""


@dataclass(frozen=True, slots=True)
class First:
    """A first call: seconds until its result, and of processor time of its thread."""

    seconds: float
    work: float


@dataclass(frozen=True, slots=True)
class Calls:
    """Durations of many calls, seconds."""

    count: int
    median: float
    p99: float
    slowest: float
    slow: float
    """The part of them that took more than ``SLOW_BAR`` medians of ``jax.jit``."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload; times in seconds, medians over rounds."""

    name: str
    first_plain: float
    first_async: float
    first_now: float
    first_ratio: float
    """Async over plain: the geometric mean of the median ratios of the rounds in which the one came first and of those
    in which the other did, since who comes first pays for cold caches."""
    first_work: float
    """The same of the processor time of the calling thread, which other programs disturb less."""
    ready: float
    """From the first result to the stitched program."""
    plain: Calls
    beside: Calls
    """``jax.jit``, while another process computes at the lowest priority."""
    meanwhile: Calls
    """Async, until the stitched program is ready."""
    swap: float
    """The first call of the stitched program, over the median call of ``jax.jit``; median over rounds."""
    after: Calls


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, -1)


def layer_norm_loss(x: Any, w: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return jnp.sum(jnp.sin((x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b))


def workloads() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """From a call of a few microseconds to one of many milliseconds."""
    small, large = jnp.linspace(-1.0, 1.0, 64 * 64).reshape(64, 64), jnp.linspace(-1.0, 1.0, 1 << 21).reshape(-1, 1024)
    return {
        "softmax [64 x 64]": (softmax, (small,)),
        "LayerNorm gradient [2048 x 1024]": (
            jax.grad(layer_norm_loss, (0, 1, 2)),
            (large, jnp.ones(1024), jnp.zeros(1024)),
        ),
        "training step [4 x 64 x 128]": make_training_step((4, 64, 128), jnp.dtype("float32")),
    }


def measure(name: str, rounds: int, scales: Any) -> Row:
    """Measures one workload; ``scales`` gives numbers that no function before has had."""
    fun, args = workloads()[name]
    firsts: dict[str, list[First]] = {"plain": [], "async": [], "now": []}
    calls: dict[str, list[float]] = {"plain": [], "beside": [], "meanwhile": [], "after": []}
    ready, swaps = [], []
    for done in range(rounds):
        print(f"{name}: round {done + 1} of {rounds}", file=sys.stderr, flush=True)
        scale = next(scales)

        def first(kind: str, jit: Any, scale: float = scale) -> Any:
            found, function = _first(jit, fun, args, scale)
            firsts[kind].append(found)
            return function

        plain = first("plain", jax.jit) if done % 2 else None
        function = first("async", functools.partial(stitch_jit, mode="async"))
        start = time.perf_counter()
        calls["meanwhile"] += _durations(function, args, functools.partial(function.wait, 0))
        ready.append(time.perf_counter() - start)
        swaps += _durations(function, args, _times(1))
        calls["after"] += _durations(function, args, _until(1.0))

        plain = plain or first("plain", jax.jit)
        calls["plain"] += _durations(plain, args, _until(ready[-1]))
        with _another_process():
            calls["beside"] += _durations(plain, args, _until(ready[-1]))
        first("now", functools.partial(stitch_jit, mode="now"), next(scales))
    median = statistics.median(calls["plain"])
    pairs = list(zip(firsts["async"], firsts["plain"], strict=True))
    return Row(
        name=name,
        first_plain=statistics.median(first.seconds for first in firsts["plain"]),
        first_async=statistics.median(first.seconds for first in firsts["async"]),
        first_now=statistics.median(first.seconds for first in firsts["now"]),
        first_ratio=_crossed([a.seconds / b.seconds for a, b in pairs]),
        first_work=_crossed([a.work / b.work for a, b in pairs]),
        ready=statistics.median(ready),
        plain=_summary(calls["plain"], median),
        beside=_summary(calls["beside"], median),
        meanwhile=_summary(calls["meanwhile"], median),
        swap=statistics.median(swaps) / median,
        after=_summary(calls["after"], median),
    )


@contextmanager
def _another_process() -> Iterator[None]:
    """A process that computes as long as this is open, where nobody else wants the processor."""
    process = subprocess.Popen([sys.executable, "-c", _COMPUTE])
    time.sleep(0.3)
    try:
        yield
    finally:
        process.kill()
        process.wait()


_COMPUTE = """
import os
os.nice(19)
if hasattr(os, "SCHED_IDLE"):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    found = {}
    for i in range(100_000):
        found[i] = str(i)
"""


def _first(jit: Any, fun: Callable[..., Any], args: Sequence[Any], scale: float) -> tuple[First, Any]:
    def scaled(*arrays: Any) -> Any:
        results = fun(*arrays)
        return jax.tree.map(lambda r: r * scale if jnp.issubdtype(r.dtype, jnp.floating) else r, results)

    function = jit(scaled)
    gc.collect()
    start, work = time.perf_counter(), time.thread_time()
    jax.block_until_ready(function(*args))
    return First(time.perf_counter() - start, time.thread_time() - work), function


def _durations(function: Callable[..., Any], args: Sequence[Any], done: Callable[[], bool]) -> list[float]:
    found = []
    while not done():
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        found.append(time.perf_counter() - start)
    return found


def _until(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def _times(count: int) -> Callable[[], bool]:
    left = iter(range(count))
    return lambda: next(left, None) is None


def _summary(durations: Sequence[float], plain: float) -> Calls:
    values = np.array(durations)
    return Calls(
        len(values),
        float(np.median(values)),
        float(np.quantile(values, 0.99)),
        float(values.max()),
        float((values > SLOW_BAR * plain).mean()),
    )


def _show(rows: Sequence[Row]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    first = Table(title=f"First result, {jax.default_backend()}, jax {jax.__version__}")
    first.add_column("function")
    for column in ("jax.jit", "async", "ratio", "of work", "now", "ready after", "swap / call"):
        first.add_column(column, justify="right")
    for row in rows:
        colour = "green" if row.first_ratio <= FIRST_BAR else "red"
        times = [format_seconds(t) for t in (row.first_plain, row.first_async, row.first_now, row.ready)]
        ratio = f"[{colour}]{row.first_ratio:.2f}[/]"
        first.add_row(row.name, *times[:2], ratio, f"{row.first_work:.2f}", *times[2:], f"{row.swap:.2f}")
    console.print(first)
    later = Table(title=f"Later calls; slow: more than {SLOW_BAR:g} median calls of jax.jit")
    for column in ("function", "calls"):
        later.add_column(column)
    for column in ("number", "median", "99 %", "slowest", "slow"):
        later.add_column(column, justify="right")
    for row in rows:
        for kind, calls in _kinds(row):
            times = [format_seconds(t) for t in (calls.median, calls.p99, calls.slowest)]
            later.add_row(row.name, kind, f"{calls.count:,}", *times, f"{calls.slow:.2%}")
    console.print(later)


def _crossed(ratios: Sequence[float]) -> float:
    """The geometric mean of the medians of every other round."""
    return geometric_mean([statistics.median(ratios[start::2] or ratios) for start in (0, 1)])


def _kinds(row: Row) -> tuple[tuple[str, Calls], ...]:
    return (
        ("jax.jit", row.plain),
        ("jax.jit, beside another process", row.beside),
        ("async, meanwhile", row.meanwhile),
        ("async, after", row.after),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables; returns 1 where a first result came later than the bar allows."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_call", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of each workload (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=tuple(workloads()), default=list(workloads()), metavar="WORKLOAD")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE, after each workload")
    options = parser.parse_args(argv)
    scales = iter(1.0 + n / 1024 for n in range(1, 1 << 20))
    rows = []
    # Every kernel is compiled; what is compiled once for a machine is compiled before.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX_STITCH_CACHE_DIR"] = folder
        _first(stitch_jit, softmax, (jnp.ones((3, 5)),), next(scales))
        for name in options.only:
            rows.append(measure(name, options.rounds, scales))
            if options.json is not None:
                found = {"about": about("cpu"), "rounds": options.rounds, "rows": [asdict(r) for r in rows]}
                write_json(options.json, found)
    _show(rows)
    return 0 if all(row.first_ratio <= FIRST_BAR for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
