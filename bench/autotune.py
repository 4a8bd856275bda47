"""``python -m bench autotune``: is any function slower under ``stitch_jit(autotune=...)`` than under ``jax.jit``?

Each workload is tuned first; then ``jax.jit``, the tuned function and a second ``jax.jit`` are called in turn, in one
process. What the two ``jax.jit`` differ by is noise. A function is slower where it took longer than both in most
rounds, and that by more than a little. Each workload has three processes of its own, and the rounds of all of them
count: whether a result of 32 MB is memory that the C library still holds, or new pages at every call, depends on what
ran there before, and on which thread; and in some processes arrays of 8 MB lie so that all calls are slower.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from bench.about import about
from bench.clock import begun
from bench.files import write_json
from bench.run import environment
from bench.suites import Case
from bench.worker import Answer, Tell, Worker
from bench.workloads import ALL
from jax_stitch import stitch_jit
from jax_stitch.backend.launch import host, ptx
from jax_stitch.util.formatting import format_seconds, text_table
from jax_stitch.util.timing import geometric_mean, time_programs

KINDS = ("plain", "tuned", "again")
PROCESSES = 3
ROUNDS = 11
"""In each process."""

CLEARLY = 0.75
"""The share of rounds in which a function has to take longer than both of ``jax.jit``; by noise alone it is a third."""

A_LITTLE = 1.02
"""What a median ratio may be above 1."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload: seconds (medians over rounds), and how they compare."""

    workload: str
    size: tuple[int, ...]
    plain: float
    tuned: float
    ratio: float
    """Tuned over plain: the median of the rounds' ratios."""
    noise: float
    """The same for the second ``jax.jit``."""
    behind: float
    """The share of rounds in which the tuned function took longer than both of ``jax.jit``."""
    kernels: int
    """Stitched kernels in its program; none where the whole function is left to ``jax.jit``."""
    seconds: float
    """That the first process's first call took: planning, compiling, and measuring what the library had not."""
    processes: tuple[float, ...] = ()
    """The median ratio of each process."""

    @property
    def is_slower(self) -> bool:
        """Beyond noise."""
        return self.behind >= CLEARLY and self.ratio > A_LITTLE


def answer(values: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The seconds of all rounds by kind, of a workload in this process: the worker's side."""
    name, size, choice = values["workload"], tuple(values["size"]), values["autotune"]
    tell("making its arguments")
    function, args = jax.block_until_ready(ALL[name].make(size, jnp.float32))
    tuned = stitch_jit(function, autotune=choice)
    tell("tuning")
    start = time.perf_counter()
    jax.block_until_ready(tuned(*args))
    seconds = time.perf_counter() - start
    tell("timing")
    functions: dict[str, Any] = {"plain": jax.jit(function), "tuned": tuned, "again": jax.jit(_another(function))}
    timings = time_programs(functions, args, rounds=ROUNDS, seconds=values["seconds"])
    text = tuned.lower(*args).as_text()
    kernels = sum(text.count(f"@{target}(") for target in (host.TARGET, ptx.TARGET))
    return {"samples": {kind: timings[kind].samples for kind in KINDS}, "kernels": kernels, "seconds": seconds}


def row_of(
    name: str, size: tuple[int, ...], processes: Sequence[Mapping[str, Sequence[float]]], kernels: int, seconds: float
) -> Row:
    """The row of all rounds' seconds by kind, of each process."""
    by_process = [list(zip(*(samples[kind] for kind in KINDS), strict=True)) for samples in processes]
    rounds = list(chain.from_iterable(by_process))
    return Row(
        name,
        size,
        statistics.median(plain for plain, _, _ in rounds),
        statistics.median(tuned for _, tuned, _ in rounds),
        statistics.median(tuned / plain for plain, tuned, _ in rounds),
        statistics.median(again / plain for plain, _, again in rounds),
        sum(tuned > max(plain, again) for plain, tuned, again in rounds) / len(rounds),
        kernels,
        seconds,
        tuple(statistics.median(tuned / plain for plain, tuned, _ in own) for own in by_process),
    )


def _another(function: Any) -> Any:
    """The same function as another one to JAX."""

    def again(*args: Any) -> Any:
        return function(*args)

    return again


@dataclass(frozen=True, slots=True)
class How:
    """Where and how to measure."""

    device: str
    """"cpu" or "cuda"."""
    choice: bool | str
    """``autotune``."""
    seconds: float
    """To time each workload."""
    limit: float
    """Seconds for each workload."""
    budget: float | None = None
    """Seconds after which no further workload is begun."""
    processes: int = PROCESSES


def run(cases: Sequence[Case], how: How, path: Path | None, console: Console) -> bool | None:
    """Measures and prints the cases one by one, and writes ``path`` after each; whether none is slower or failed, None
    where none is and there was no time for all."""
    start = begun()
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for case in cases:
        if how.budget is not None and time.monotonic() - start > how.budget:
            break
        left = how.limit if how.budget is None else min(how.limit, how.budget - (time.monotonic() - start) + 1)
        request = {"workload": case.workload.name, "size": case.size, "autotune": how.choice, "seconds": how.seconds}
        answers: list[Mapping[str, Any]] = []
        for _ in range(how.processes):
            with Worker(environment(how.device)) as worker:
                found = worker.ask("bench.autotune", request, left)
            if found.values is None:
                if left < how.limit:
                    break  # The time of all was up, not its own.
                failed[case.workload.name] = _failure(found)
                console.print(f"{case.workload.name}: {failed[case.workload.name]}", highlight=False, markup=False)
                break
            answers.append(found.values)
        else:
            first = answers[0]
            samples = [values["samples"] for values in answers]
            rows.append(row_of(case.workload.name, tuple(case.size), samples, first["kernels"], first["seconds"]))
            console.print(_line(rows[-1]), highlight=False, markup=False)
        if path is not None:
            told = about(how.device) | {"autotune": how.choice, "seconds": time.monotonic() - start}
            told_rows = [asdict(r) | {"is_slower": r.is_slower} for r in rows]
            write_json(path, {"about": told, "rows": told_rows, "failed": failed})
    console.print()
    console.print(_table(rows), highlight=False, markup=False)
    slower = [r.workload for r in rows if r.is_slower]
    if rows:
        mean = geometric_mean([r.plain / r.tuned for r in rows])
        console.print(
            f"{len(rows)} functions in {time.monotonic() - start:.0f} s; geometric mean {mean:.2f} times jax.jit"
        )
        console.print(f"slower beyond noise: {', '.join(slower) or 'none'}", highlight=False)
    if slower or failed:
        return False
    return True if len(rows) == len(cases) else None


def _failure(found: Answer) -> str:
    return f"FAILED while {found.stage}: {found.reason}"


def _line(row: Row) -> str:
    times = f"{format_seconds(row.plain)} jax.jit, {format_seconds(row.tuned)} tuned"
    verdict = "SLOWER" if row.is_slower else f"{row.kernels} kernels"
    return f"{row.workload}: {times}, ratio {row.ratio:.3f} (noise {row.noise:.3f}), {verdict}, {row.seconds:.0f} s"


def _table(rows: Sequence[Row]) -> str:
    header = ("workload", "jax.jit", "autotuned", "ratio", "jax.jit again", "behind both", "kernels", "first call", "")
    cells = [
        (
            row.workload,
            format_seconds(row.plain),
            format_seconds(row.tuned),
            f"{row.ratio:.3f}",
            f"{row.noise:.3f}",
            f"{row.behind:.0%}",
            str(row.kernels),
            f"{row.seconds:.1f} s",
            "SLOWER" if row.is_slower else "",
        )
        for row in rows
    ]
    return text_table(header, cells, right=(1, 2, 3, 4, 5, 6, 7))
