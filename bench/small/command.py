"""``python -m bench small``: small programs stitched, compared in turn with ``jax.jit`` and with jax 0.4.31."""

from __future__ import annotations

import argparse
import contextlib
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
from bench.small import packages
from bench.small.old import VERSION, python_of
from bench.small.packages import installed
from bench.small.programs import ALGEBRA, LAYERS, PROGRAMS, STEPS, USUAL
from bench.small.scans import GROWTH
from bench.turns import KINDS, order
from bench.worker import Answer, Worker
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

MODULE = "bench.small.answers"
LEAST, LEAST_OLD = 0.97, 0.8
"""The least speed of a program, relative to ``jax.jit`` and to jax 0.4.31."""
ROUNDING = 4.0
"""The factor by which its error may exceed that of ``jax.jit``: orders of additions differ."""
_OLD_FOLDER = Path(tempfile.gettempdir()) / f"jax-stitch-bench-jax-{VERSION}"


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("small", help="small programs on one core: jax.jit, stitched, and jax 0.4.31")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(PROGRAMS), metavar="PROGRAM", help="these alone")
    parser.add_argument("--packages", action="store_true", help="programs of public packages, of those that are here")
    parser.add_argument("--algebra", action="store_true", help="small linear algebra and complex numbers")
    parser.add_argument("--steps", action="store_true", help="loops that sort, add up, draw numbers, exchange elements")
    parser.add_argument("--layers", action="store_true", help="products with vectors and small batches")
    parser.add_argument("--growth", action="store_true", help="scans of scalars: time by number of carries and steps")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds to compile each (default: %(default)s)")
    parser.add_argument("--no-old", action="store_true", help=f"leave out jax {VERSION}")
    parser.add_argument("--old-python", metavar="FILE", help=f"an interpreter that has jax {VERSION}; else one is made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each program")
    parser.set_defaults(command=_small)


def _small(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.rounds < 3:
        parser.error("--rounds is at least 3")
    console = Console(width=None if sys.stdout.isatty() else 160)
    growing = tuple(program.name for program in GROWTH.values()) if options.growth else ()
    sets = (
        (options.layers, LAYERS),
        (options.steps, STEPS),
        (options.algebra, ALGEBRA),
        (options.packages, installed()),
        (True, USUAL),
    )
    others = next(programs for is_asked, programs in sets if is_asked)
    names = options.only or growing or others
    if not names:
        parser.error(f"none of the packages is here: pip install {' '.join(packages.DISTRIBUTIONS)}")
    old = None if options.no_old else options.old_python or _old_python(names)
    same = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1" if options.dtype == "float64" else "0"}
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        new = stack.enter_context(Worker(same))
        judge = stack.enter_context(Worker(same | {"JAX_ENABLE_X64": "1"}))
        past = stack.enter_context(Worker(same, old)) if old is not None else None
        for name in names:
            console.print(f"... {name}", highlight=False)
            rows.append(measured(name, options, new, judge, past))
            if options.json is not None:
                write_json(options.json, {"about": about("cpu"), "dtype": options.dtype, "rows": rows})
    console.print(_table(rows))
    if growing:
        console.print(growth_table(rows))
    return int(not all(keeps_bars(row) for row in rows))


def _old_python(names: Sequence[str]) -> str:
    """Return the interpreter of an environment that has the packages of the programs."""
    if not {program.name for program in packages.PROGRAMS} & set(names):
        return python_of(_OLD_FOLDER)
    return python_of(_OLD_FOLDER.with_name(f"{_OLD_FOLDER.name}-packages"), *packages.OLD_DISTRIBUTIONS)


def measured(
    name: str,
    options: argparse.Namespace,
    new: Worker,
    judge: Worker,
    past: Worker | None = None,
    *,
    inside: bool = False,
) -> dict[str, Any]:
    """Return one program's figures, ``inside`` another program or alone; "failed" is the reason if it failed."""
    row: dict[str, Any] = {"program": name, "like": PROGRAMS[name].like, "failed": None}
    with tempfile.TemporaryDirectory() as folder:
        dtype = "float64" if PROGRAMS[name].doubles else options.dtype
        question = {
            "do": "prepare",
            "program": name,
            "dtype": dtype,
            "file": f"{folder}/reference.npz",
            "inside": inside,
        }
        asked: list[tuple[Worker, dict[str, Any]]] = [
            (judge, question | {"kinds": ["reference"], "dtype": "float64"}),
            (new, question | {"kinds": KINDS}),
        ]
        if past is not None:
            asked.append((past, question | {"kinds": ["old"]}))
        for worker, request in asked:
            answer = worker.ask(MODULE, request, options.limit)
            if not _taken(row, answer):
                return row
    samples: dict[str, list[float]] = {}
    for n in range(options.rounds):
        turns: list[tuple[Worker, tuple[str, ...]]] = [(new, order(n)), *([(past, ("old",))] if past else [])]
        for worker, kinds in turns:
            answer = worker.ask(MODULE, {"do": "round", "kinds": kinds}, options.limit)
            if answer.values is None:
                return row | {"failed": f"{answer.stage}: {answer.reason}"}
            for kind, seconds in answer.values.items():
                samples.setdefault(kind, []).append(seconds)
    return row | compared(samples)


def _taken(row: dict[str, Any], answer: Answer) -> bool:
    if answer.values is None:
        row["failed"] = f"{answer.stage}: {answer.reason}"
        return False
    row |= answer.values
    return True


def compared(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the median seconds by kind, and the speed-ups of the stitched program: medians of the rounds' ratios."""

    def times(kind: str) -> float:
        pairs = zip(samples[kind], samples["stitched"], strict=True)
        return statistics.median(other / stitched for other, stitched in pairs)

    found: dict[str, Any] = {kind: statistics.median(taken) for kind, taken in samples.items()}
    again = zip(samples["again"], samples["plain"], strict=True)
    found |= {"times_jit": times("plain"), "noise": statistics.median(a / b for a, b in again)}
    return found | ({"times_old": times("old")} if "old" in samples else {})


def keeps_bars(row: Mapping[str, Any]) -> bool:
    """Return whether a program ran, agrees with ``jax.jit``, and is nowhere slower than allowed."""
    if row["failed"] is not None or not agrees(row):
        return False
    return bool(row["times_jit"] >= LEAST and row.get("times_old", LEAST_OLD) >= LEAST_OLD)


def agrees(row: Mapping[str, Any]) -> bool:
    """Return whether a program is as exact as ``jax.jit``, at its inputs or at neighbouring numbers, up to rounding."""
    return bool(row["stitched_error"] <= ROUNDING * max(row["plain_error"], row["moved_error"]))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Small programs: one call")
    table.add_column("program")
    figures = "noise", "kernels", "left", "error (jax.jit, moved)"
    for column in ("jax.jit", "stitched", f"jax {VERSION}", "/ jit", "/ old", *figures):
        table.add_column(column, justify="right")
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["program"], "failed", row["failed"])
            continue
        old = format_seconds(row["old"]) if "old" in row else "-"
        table.add_row(
            row["program"],
            format_seconds(row["plain"]),
            format_seconds(row["stitched"]),
            old,
            f"{row['times_jit']:.2f}",
            f"{row['times_old']:.2f}" if "old" in row else "-",
            f"{row['noise']:.2f}",
            str(row["kernels"]),
            str(row["left"]),
            f"{row['stitched_error']:.0e} ({row['plain_error']:.0e}, {row['moved_error']:.0e})",
        )
    done = [row for row in rows if row["failed"] is None]
    if done:
        means = [geometric_mean([row[k] for row in done]) if k in done[0] else None for k in ("times_jit", "times_old")]
        table.add_row("geometric mean", "", "", "", *("-" if m is None else f"{m:.2f}" for m in means))
    return table


def growth_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of times per step and carry, which are constant if time grows linearly, and of first calls."""
    table = Table(title="Gradients through scans of scalars: a step and carry, and first calls")
    for column in ("carries", "steps", "jax.jit", "stitched", "/ jit", "first jax.jit", "first stitched"):
        table.add_column(column, justify="right")
    by_name = {row["program"]: row for row in rows}
    for (carries, steps), program in GROWTH.items():
        row = by_name.get(program.name)
        if row is None or row["failed"] is not None:
            table.add_row(f"{carries}", f"{steps:,}", "-" if row is None else row["failed"])
            continue
        each = [format_seconds(row[kind] / (carries * steps)) for kind in ("plain", "stitched")]
        first = [format_seconds(row[kind]) for kind in ("plain_first", "stitched_first")]
        table.add_row(f"{carries}", f"{steps:,}", *each, f"{row['times_jit']:.2f}", *first)
    return table
