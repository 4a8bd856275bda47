"""``python -m bench inside``: small programs stitched as parts of another, without timings in advance.

Each stitched function is called in the default mode, with empty caches, by another that ``jax.jit`` compiles. There
predictions alone decide whether it is stitched; its times are compared in turn with those of ``jax.jit``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.small.command import agrees, measured
from bench.small.programs import INSIDE, PROGRAMS
from bench.worker import Worker
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

LEAST = 0.9
"""The least speed of a program, relative to ``jax.jit``."""
RUNS = 3
"""The most runs of a program that seems slower, each with empty caches: their median counts."""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("inside", help="small programs as parts of another under jax.jit, in the default mode")
    parser.add_argument("--only", nargs="+", default=INSIDE, choices=tuple(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds to compile each (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each program")
    parser.set_defaults(command=_inside, dtype="float32")


def _inside(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.rounds < 3:
        parser.error("--rounds is at least 3")
    console = Console(width=None if sys.stdout.isatty() else 200)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    for _ in range(RUNS):
        left = [name for name, runs in rows.items() if not runs or not keeps_bar(middle(runs))]
        _run(left, options, console, rows)
    found = [middle(runs) for runs in rows.values()]
    console.print(_table(found))
    return int(not all(keeps_bar(row) for row in found))


def _run(
    names: Sequence[str], options: argparse.Namespace, console: Console, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """Measure these programs, in separate processes with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        same = {"JAX_PLATFORMS": "cpu", "JAX_STITCH_CACHE_DIR": cache, "JAX_STITCH_LOG": "off"}
        single, double, judge = (Worker(same | {"JAX_ENABLE_X64": wide}) for wide in "011")
        with single, double, judge:
            for name in names:
                console.print(f"... {name}", highlight=False)
                new = double if PROGRAMS[name].doubles else single
                rows[name].append(measured(name, options, new, judge, inside=True))
                if options.json is not None:
                    kept = [middle(runs) | {"runs": len(runs)} for runs in rows.values() if runs]
                    write_json(options.json, {"about": about("cpu"), "rows": kept})


def middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first failed run, or else the median one by speed."""
    failed = [run for run in runs if run["failed"] is not None]
    return failed[0] if failed else sorted(runs, key=lambda run: run["times_jit"])[(len(runs) - 1) // 2]


def keeps_bar(row: Mapping[str, Any]) -> bool:
    """Return whether a program ran, agrees with ``jax.jit``, and is no slower than allowed."""
    return row["failed"] is None and agrees(row) and bool(row["times_jit"] >= LEAST)


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Parts of another program, in the default mode: one call")
    table.add_column("program")
    for column in ("jax.jit", "stitched", "/ jit", "noise", "kernels", "first jax.jit", "first stitched"):
        table.add_column(column, justify="right")
    table.add_column("why")
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["program"], "failed", row["failed"])
            continue
        times = (format_seconds(row[kind]) for kind in ("plain", "stitched"))
        firsts = (format_seconds(row[f"{kind}_first"]) for kind in ("plain", "stitched"))
        said = "" if keeps_bar(row) else "SLOWER " if agrees(row) else "WRONG "
        ratios = f"{row['times_jit']:.2f}", f"{row['noise']:.2f}"
        table.add_row(row["program"], *times, *ratios, str(row["kernels"]), *firsts, said + row["detail"])
    done = [row["times_jit"] for row in rows if row["failed"] is None]
    if done:
        table.add_row("geometric mean", "", "", f"{geometric_mean(done):.2f}", f"{statistics.median(done):.2f} median")
    return table
