"""``python -m bench threads``: how ``jax.jit`` and ``stitch_jit`` gain from a CPU's cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.measure import Request
from bench.rows import row_from
from bench.suites import Case
from bench.tables import markdown
from bench.worker import Worker
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean


@dataclass(frozen=True, slots=True)
class Times:
    """The least time of a call under both, in seconds: what else the machine does only adds to it."""

    jit: float
    stitched: float

    @property
    def speedup(self) -> float:
        return self.jit / self.stitched


@dataclass(frozen=True, slots=True)
class Row:
    """One workload on one core, and on all."""

    workload: str
    size: tuple[int, ...]
    one: Times
    all: Times

    @property
    def jit_gain(self) -> float:
        """How many times as fast ``jax.jit`` is on all cores."""
        return self.one.jit / self.all.jit

    @property
    def stitched_gain(self) -> float:
        """How many times as fast ``stitch_jit`` is on all cores."""
        return self.one.stitched / self.all.stitched


def run(cases: Sequence[Case], seconds: float, limit: float, path: Path | None, console: Console) -> int:
    """Measures the cases in two processes, one that may use one core and one that may use all, in turn; prints the
    table. The exit status is 1 where one failed.
    """
    usable = sorted(os.sched_getaffinity(0))
    rows: list[Row] = []
    failed = 0
    with ExitStack() as stack:
        workers = {count: stack.enter_context(Worker({"JAX_PLATFORMS": "cpu"})) for count in (1, len(usable))}
        for case in cases:
            found: dict[int, Times] = {}
            for count, worker in workers.items():
                with confined(usable[:count]):
                    answer = worker.ask("bench.measure", _request(case, seconds), limit)
                if answer.values is None:
                    failed += 1
                    text = f"{case.workload.name}: FAILED on {count} cores while {answer.stage}: {answer.reason}"
                    console.print(text, highlight=False, markup=False)
                    break
                found[count] = _times(answer.values)
            else:
                rows.append(Row(case.workload.name, case.size, found[1], found[len(usable)]))
                row = rows[-1]
                text = f"{row.workload}: {row.jit_gain:.2f} jax.jit, {row.stitched_gain:.2f} stitched"
                console.print(text, highlight=False, markup=False)
                if path is not None:
                    write_json(path, {"about": about("cpu"), "rows": [asdict(row) for row in rows]})
    if rows:
        print(table(rows, len(usable)))
    return 1 if failed else 0


@contextmanager
def confined(cores: Sequence[int]) -> Iterator[None]:
    """Processes that are started meanwhile may use these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _request(case: Case, seconds: float) -> dict[str, Any]:
    return asdict(Request(case.workload.name, case.size, case.checked, "float32", "cpu", "times", seconds))


def _times(values: Any) -> Times:
    row = row_from(values)
    assert row.jit.time is not None and row.stitched.time is not None
    return Times(min(row.jit.time.samples), min(row.stitched.time.samples))


def table(rows: Sequence[Row], cores: int) -> str:
    """The rows as Markdown."""
    many = f"{cores} cores"
    header = ("workload", "jax.jit: 1 core", many, "gain", "stitched: 1 core", many, "gain", "speed-up: 1 core", many)
    lines = [
        (
            f"{row.workload} [{' x '.join(map(str, row.size))}]",
            *(format_seconds(row.one.jit), format_seconds(row.all.jit), f"{row.jit_gain:.2f}"),
            *(format_seconds(row.one.stitched), format_seconds(row.all.stitched), f"{row.stitched_gain:.2f}"),
            *(f"{row.one.speedup:.2f}", f"{row.all.speedup:.2f}"),
        )
        for row in rows
    ]
    means = (
        *("geometric mean", "", "", f"{geometric_mean([r.jit_gain for r in rows]):.2f}"),
        *("", "", f"{geometric_mean([r.stitched_gain for r in rows]):.2f}"),
        f"{geometric_mean([r.one.speedup for r in rows]):.2f}",
        f"{geometric_mean([r.all.speedup for r in rows]):.2f}",
    )
    return markdown(header, [*lines, means], right=range(1, len(header)))
