"""Times of workloads under ``jax.jit`` and ``stitch_jit`` at the sizes of the design's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.workloads import WORKLOADS, Workload
from jax_stitch.api import stitch_jit
from jax_stitch.text import format_seconds
from jax_stitch.timing import Timing, geometric_mean, time_in_turn

SUITES = {
    "micro": ("normalisation", "softmax", "loss"),
    "all": ("normalisation", "softmax", "loss", "model", "optimizer"),
}
"""Families of workloads by suite."""

MEAN_BAR, WORST_BAR = 1.5, 0.95
"""What the micro suite must reach on a CPU: geometric mean and minimum of the speed-up."""


def members(suite: str) -> list[Workload]:
    """The workloads of a suite."""
    return [w for w in WORKLOADS.values() if w.family in SUITES[suite]]


@dataclass(frozen=True, slots=True)
class Row:
    """One workload's times."""

    name: str
    size: tuple[int, ...]
    plain: Timing
    stitched: Timing

    @property
    def speedup(self) -> float:
        """Above 1, stitching is faster."""
        return self.plain.median / self.stitched.median


@dataclass(frozen=True, slots=True)
class Result:
    """All rows of a suite."""

    suite: str
    dtype: str
    backend: str
    rows: tuple[Row, ...]

    @property
    def mean(self) -> float:
        """Geometric mean of the speed-ups."""
        return geometric_mean([row.speedup for row in self.rows])

    @property
    def worst(self) -> Row:
        """The workload with the least speed-up."""
        return min(self.rows, key=lambda row: row.speedup)

    @property
    def passed(self) -> bool:
        """Whether the bars are reached that the whole micro suite has on a CPU in float32; other runs have none."""
        whole = len(self.rows) == len(members(self.suite))
        judged = whole and (self.suite, self.dtype, self.backend) == ("micro", "float32", "cpu")
        return not judged or (self.mean >= MEAN_BAR and self.worst.speedup >= WORST_BAR)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in seconds."""
        return {
            "suite": self.suite,
            "dtype": self.dtype,
            "backend": self.backend,
            "geometric_mean": self.mean,
            "worst": {"name": self.worst.name, "speedup": self.worst.speedup},
            "rows": [
                {
                    "name": row.name,
                    "size": list(row.size),
                    "plain": row.plain.median,
                    "stitched": row.stitched.median,
                    "plain_spread": row.plain.spread,
                    "stitched_spread": row.stitched.spread,
                    "speedup": row.speedup,
                }
                for row in self.rows
            ],
        }


def run(suite: str, dtype: str, only: Sequence[str], seconds: float, console: Console) -> Result:
    """Times the workloads of a suite (those named in ``only``, if any) and prints the table."""
    chosen = [WORKLOADS[name] for name in only] or members(suite)
    rows: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("timing", total=len(chosen))
        for workload in chosen:
            progress.update(task, description=workload.name)
            rows.append(_time(workload, dtype, seconds))
            progress.advance(task)
    result = Result(suite, dtype, jax.default_backend(), tuple(rows))
    _show(result, console)
    return result


def _time(workload: Workload, dtype: str, seconds: float) -> Row:
    function, args = workload.make(workload.size, jnp.dtype(dtype))
    plain, stitched = jax.jit(function), stitch_jit(function)
    timings = time_in_turn(
        {"plain": lambda: plain(*args), "stitched": lambda: stitched(*args)}, rounds=25, seconds=seconds
    )
    return Row(workload.name, workload.size, timings["plain"], timings["stitched"])


def _show(result: Result, console: Console) -> None:
    table = Table(title=f"{result.suite}, {result.dtype}, {result.backend}, jax {jax.__version__}")
    for column in ("workload", "size"):
        table.add_column(column)
    for column in ("jax.jit", "stitched", "spread", "speed-up"):
        table.add_column(column, justify="right")
    for row in result.rows:
        colour = "green" if row.speedup >= 1.05 else "red" if row.speedup < WORST_BAR else ""
        speedup = f"{row.speedup:.2f}x"
        table.add_row(
            row.name,
            " x ".join(map(str, row.size)),
            format_seconds(row.plain.median),
            format_seconds(row.stitched.median),
            f"{max(row.plain.spread, row.stitched.spread):.0%}",
            f"[{colour}]{speedup}[/]" if colour else speedup,
        )
    console.print(table)
    console.print(
        f"geometric mean {result.mean:.2f}x, worst {result.worst.speedup:.2f}x ({result.worst.name})", highlight=False
    )
