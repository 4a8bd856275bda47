"""``python -m bench first_minute``: what a new user meets who puts ``stitch_jit`` where ``jax.jit`` was.

Each workload in processes of its own: ``jax.jit``, then ``stitch_jit`` in its default mode with caches that are empty,
then with what that has left. Counted are the first result, the processor time until nothing more goes on, the calls
meanwhile, the verdict, and what calls take from then on, in turn with ``jax.jit``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.suites import Case
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

FIRST_TIMES, FIRST_MORE = 1.1, 0.2
"""A first result may take so many times that of ``jax.jit``, and so many seconds more."""
AFTER = 0.97
"""What calls have to reach after the verdict, of the speed of ``jax.jit``."""


def run(cases: Sequence[Case], path: Path | None, note: str, console: Console) -> bool:
    """Measures workloads and prints a table; True if none came later, or is slower, than the bars allow."""
    rows: list[dict[str, Any]] = []
    for case in cases:
        console.print(f"... {case.workload.name} {list(case.size)}", highlight=False)
        rows.append(measured(case))
        if path is not None:
            write_json(path, {"about": about("cpu"), "note": note, "rows": rows})
    console.print(_table(rows))
    return all(row["failed"] is None and keeps_bars(row) for row in rows)


def measured(case: Case) -> dict[str, Any]:
    """The figures of one workload; "failed" says what went wrong, if anything."""
    row: dict[str, Any] = {"workload": case.workload.name, "size": list(case.size), "failed": None}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("jit", "auto", "again"):
            command = [sys.executable, "-m", "bench.first_minute_worker", kind, case.workload.name]
            environment = os.environ | {"JAX_STITCH_CACHE_DIR": folder, "JAX_STITCH_LOG": "off"}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
            try:
                found = subprocess.run(
                    [*command, json.dumps(case.size)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=True,
                )
                row[kind] = json.loads(found.stdout.splitlines()[-1])
            except subprocess.CalledProcessError as error:
                row["failed"] = f"{kind}: {error.stderr[-500:]}"
                break
            except subprocess.TimeoutExpired:
                row["failed"] = f"{kind}: no end after 600 s"
                break
    return row


def keeps_bars(row: dict[str, Any]) -> bool:
    """Whether the first result came as soon, and calls are as fast afterwards, as they should."""
    allowed = FIRST_TIMES * row["jit"]["first"] + FIRST_MORE
    return bool(row["auto"]["first"] <= allowed and row["auto"]["after"] >= AFTER)


def work_ratio(row: dict[str, Any]) -> float:
    """Processor time until nothing more goes on, less a second, over that of the first call of ``jax.jit``."""
    spent = row["auto"]["first_work"] + row["auto"]["work"] - 1.0
    return float(max(spent, 0.0) / row["jit"]["first_work"])


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="The first minute, caches empty")
    table.add_column("workload")
    for column in ("jax.jit", "auto", "again", "work / jit", "settled", "slow calls", "verdict", "speed"):
        table.add_column(column, justify="right")
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["workload"], "failed", row["failed"])
            continue
        auto = row["auto"]
        table.add_row(
            row["workload"],
            *(format_seconds(row[kind]["first"]) for kind in ("jit", "auto", "again")),
            f"{work_ratio(row):.1f}",
            format_seconds(auto["settled"]),
            f"{auto['meanwhile']['slow']:.1%} ({row['jit']['calls']['slow']:.1%})",
            auto["state"],
            f"{auto['after']:.2f}",
        )
    done = [row for row in rows if row["failed"] is None]
    if done:
        speed = geometric_mean([row["auto"]["after"] for row in done])
        work = geometric_mean([max(work_ratio(row), 0.01) for row in done])
        table.add_row("geometric mean", "", "", "", f"{work:.1f}", "", "", "", f"{speed:.2f}")
    return table
