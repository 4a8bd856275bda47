"""Kernel launches and bytes per call on a described device: XLA's, those with stitching, and the design's target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.workloads import WORKLOADS, Workload
from jax_stitch.api import stitch_jit
from jax_stitch.text import format_ratio


@dataclass(frozen=True, slots=True)
class Row:
    """One workload at the size of the design's table, f32; bytes per call."""

    workload: Workload
    xla_launches: int
    launches: int
    xla_bytes: int
    bytes: int
    bound_bytes: int

    @property
    def worse(self) -> bool:
        """Whether stitching launches more than XLA, or as much where XLA is known to need several."""
        several = (self.workload.xla_launches or 0) > 1
        return self.launches > self.xla_launches or (several and self.launches == self.xla_launches)


@dataclass(frozen=True, slots=True)
class Result:
    """The table."""

    device: str
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """Whether no workload is worse off."""
        return not any(row.worse for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "device": self.device,
            "rows": [
                {
                    "name": row.workload.name,
                    "size": list(row.workload.size),
                    "launches": {"xla": row.xla_launches, "stitched": row.launches, "target": row.workload.target},
                    "bytes": {"xla": row.xla_bytes, "stitched": row.bytes, "bound": row.bound_bytes},
                }
                for row in self.rows
            ],
        }


def run(device: str, only: Sequence[str], console: Console) -> Result:
    """Plans every workload (those named in ``only``, if any) for ``device`` and prints the table."""
    chosen = [w for w in WORKLOADS.values() if not only or w.name in only]
    rows: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("planning", total=len(chosen))
        for workload in chosen:
            progress.update(task, description=workload.name)
            rows.append(_plan(workload, device))
            progress.advance(task)
    result = Result(device, tuple(rows))
    _show(result, console)
    return result


def _plan(workload: Workload, device: str) -> Row:
    function, shapes = workload.abstract(workload.size, jnp.float32)
    plan: Any = stitch_jit(function).plan(*shapes, device=device)
    return Row(workload, plan.xla_launches, plan.launches, plan.xla_bytes, plan.bytes, plan.bound_bytes)


def _show(result: Result, console: Console) -> None:
    table = Table(title=f"kernel launches and bytes per call, f32, {result.device}")
    for column in ("workload", "size"):
        table.add_column(column)
    for column in ("XLA", "stitched", "target", "XLA bytes / bound", "stitched bytes / bound"):
        table.add_column(column, justify="right")
    for row in result.rows:
        table.add_row(
            row.workload.name,
            " x ".join(map(str, row.workload.size)),
            f"{row.xla_launches:,}",
            f"[red]{row.launches:,}[/]" if row.worse else f"{row.launches:,}",
            "-" if row.workload.target is None else f"{row.workload.target:,}",
            format_ratio(row.xla_bytes, row.bound_bytes),
            format_ratio(row.bytes, row.bound_bytes),
        )
    console.print(table)
