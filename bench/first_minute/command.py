"""``python -m bench first_minute``: the workloads, and programs on public libraries, in processes of their own.

Each under ``jax.jit``, then under ``stitch_jit`` in its default mode with caches that are empty, then both with what
that has left, JAX's persistent cache too. Counted are the first results, the processor time until nothing more goes on,
that of planning alone beside XLA's compilation, the calls meanwhile, the verdict, and what calls take from then on, in
turn with ``jax.jit``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.first_minute import growth
from bench.first_minute.programs import DISTRIBUTIONS, PROGRAMS, missing
from bench.suites import NAMES, cases
from bench.workloads import ALL
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

FIRST_TIMES, FIRST_MORE = 1.1, 0.2
"""A first result may take so many times that of ``jax.jit``, and with empty caches so many seconds more."""
WORK, WORK_OF_ANY = 2.0, 4.0
"""Processor time until nothing more goes on, less a second, over that of ``jax.jit``: in the mean, and at most."""
PLANNING, PLANNING_OF_ANY = 0.5, 1.5
"""Processor time of planning alone over that of XLA's compilation: in the mean, and at most."""
AFTER = 0.97
"""What calls have to reach after the verdict, of the speed of ``jax.jit``."""
SLOW = 0.05
"""The part of calls meanwhile that may take over twice the median, beyond that of ``jax.jit``."""
_LIMIT = 600.0
_KINDS, _LATER = ("jit", "auto"), ("jit_again", "again")
_PLANNED = "planned"
_LATER_RUNS, _MOST_LATER_RUNS = 3, 9
"""Later processes of each kind, in turn: their first results are short, and one alone is noise. The larger number where
the smaller has them slower at all.
"""
_MOST_RUNS = 5
"""Processes with empty caches, where one breaks the bar of the first result or of the calls meanwhile: a machine has
pauses, and the first touch of much memory takes now a tenth of a second and now a whole one.
"""
_FOLDERS = {"jit_again": "jit", "again": "auto"}


def add(commands: Any) -> None:
    """The command, among those of ``python -m bench``."""
    parser = commands.add_parser("first_minute", help="first result, work beside it and verdict, caches empty")
    parser.add_argument("--suite", choices=(*NAMES, "libraries"), default="all", help="(default: %(default)s)")
    names = (*ALL, *(program.name for program in PROGRAMS))
    parser.add_argument("--only", nargs="+", default=[], choices=names, metavar="NAME", help="these alone")
    parser.add_argument("--small", action="store_true", help="workloads at the sizes of the tests")
    parser.add_argument("--growth", action="store_true", help="programs that grow instead: planning alone")
    parser.add_argument("--note", default="", help="about the machine, for the file")
    what = "write the figures to FILE, after each; what it has of this commit stays"
    parser.add_argument("--json", type=Path, metavar="FILE", help=what)
    parser.set_defaults(command=_command)


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.growth:
        try:
            return 0 if run_growth(options, console) else 1
        except _Failure as failure:
            console.print(str(failure), highlight=False, markup=False)
            return 1
    asked = {case.workload.name: list(case.size) for case in _cases(options)}
    if options.suite in ("all", "libraries"):
        asked |= {p.name: [] for p in PROGRAMS if not options.only or p.name in options.only}
    if not asked:
        parser.error("none of these is in the suite")
    if out := [name for name in missing() if name in asked]:
        console.print(f"left out: {', '.join(out)}; pip install {DISTRIBUTIONS}", highlight=False)
    return 0 if run({name: asked[name] for name in asked if name not in out}, options, console) else 1


def _cases(options: argparse.Namespace) -> Sequence[Any]:
    if options.suite == "libraries":
        return []
    return cases(options.suite, only=options.only, small=options.small) if _names_workloads(options.only) else []


def _names_workloads(only: Sequence[str]) -> bool:
    return not only or any(name in ALL for name in only)


def run(asked: Mapping[str, list[int]], options: argparse.Namespace, console: Console) -> bool:
    """Measures programs, by name and size, and prints a table; True if all of them keep every bar."""
    described = about("cpu")
    rows = _done(options.json, described)
    for name, size in asked.items():
        if any(row["program"] == name and row["size"] == size for row in rows):
            continue
        console.print(f"... {name} {size or ''}", highlight=False)
        rows.append(measured(name, size))
        if options.json is not None:
            write_json(options.json, {"about": described, "note": options.note, "rows": rows})
    console.print(_table(rows))
    kept = all(row["failed"] is None and not broken(row) for row in rows)
    return kept and mean_work(rows) <= WORK and mean_planning(rows) <= PLANNING


def run_growth(options: argparse.Namespace, console: Console) -> bool:
    """Plans programs that grow, and prints a table; True if no kind takes more and more for an operation."""
    rows: list[dict[str, Any]] = []
    for kind, size, name in ((k.name, size, growth.name_of(k, size)) for k in growth.KINDS for size in k.sizes):
        console.print(f"... {name}", highlight=False)
        with tempfile.TemporaryDirectory() as folder:
            rows.append({"kind": kind, "size": size, **_worked(_PLANNED, name, [], Path(folder))})
        if options.json is not None:
            write_json(options.json, {"about": about("cpu"), "note": options.note, "rows": rows})
    console.print(growth.table(rows))
    return max(growth.grown(rows).values()) <= growth.AT_MOST


def _done(path: Path | None, described: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a file has of the same code."""
    if path is None or not path.exists():
        return []
    found = json.loads(path.read_text())
    commit = described["commit"]
    return list(found["rows"]) if commit and commit == found["about"]["commit"] and "+" not in commit else []


def measured(name: str, size: list[int]) -> dict[str, Any]:
    """The figures of one program; "failed" says what went wrong, if anything."""
    row: dict[str, Any] = {"program": name, "size": size, "failed": None}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for kind in (*_KINDS, _PLANNED):
                row[kind] = _worked(kind, name, size, Path(folder))
            row |= _later(name, size, Path(folder))
            _again_if_broken(row)
        except _Failure as failure:
            row["failed"] = str(failure)
    return row


def _later(name: str, size: list[int], folder: Path) -> dict[str, Any]:
    """What later processes have measured: of each kind the one whose first result took the median time."""
    runs: list[dict[str, Any]] = []
    while True:
        runs += [{kind: _worked(kind, name, size, folder) for kind in _LATER} for _ in range(_LATER_RUNS)]
        found = {}
        for kind in _LATER:
            found[kind] = sorted((run[kind] for run in runs), key=lambda run: run["first"])[len(runs) // 2]
        if found["again"]["first"] <= found["jit_again"]["first"] or len(runs) >= _MOST_LATER_RUNS:
            return found | {"later_runs": len(runs)}


def _again_if_broken(row: dict[str, Any]) -> None:
    """Measures in further processes what one alone breaks: the first results, of which the medians count, and the calls
    meanwhile, all of which count.
    """
    firsts = {kind: [row[kind]["first"]] for kind in _KINDS}
    while set(broken(row)) & {"first", "meanwhile"} and len(firsts["jit"]) < _MOST_RUNS:
        with tempfile.TemporaryDirectory() as folder:
            for kind, calls in zip(_KINDS, ("calls", "meanwhile"), strict=True):
                more = _worked(kind, row["program"], row["size"], Path(folder))
                firsts[kind].append(more["first"])
                together = _together(row[kind][calls], more[calls])
                row[kind] = row[kind] | {calls: together, "first": statistics.median(firsts[kind])}
    row["runs"] = len(firsts["jit"])


def _together(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The calls of both processes, each compared with the median of its own; the median is that of one."""
    count = one["count"] + other["count"]
    slow = (one["slow"] * one["count"] + other["slow"] * other["count"]) / max(count, 1)
    return {"count": count, "median": one["median"], "slow": slow}


class _Failure(Exception):
    """A process that did not do its work: which, and why."""


def _worked(kind: str, name: str, size: list[int], folder: Path) -> dict[str, Any]:
    """What a process of its own has measured, with the caches of its kind."""
    own = folder / _FOLDERS.get(kind, kind)
    command = [sys.executable, "-m", "bench.first_minute.worker", kind, name, json.dumps(size)]
    try:
        found = subprocess.run(
            command, env=_environment(own), capture_output=True, text=True, timeout=_LIMIT, check=True
        )
    except subprocess.CalledProcessError as error:
        raise _Failure(f"{kind}: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired:
        raise _Failure(f"{kind}: no end after {_LIMIT:.0f} s") from None
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def _environment(folder: Path) -> dict[str, str]:
    found = os.environ | {
        "JAX_STITCH_CACHE_DIR": str(folder / "stitch"),
        "JAX_STITCH_LOG": "off",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
    return found


def broken(row: Mapping[str, Any]) -> list[str]:
    """The bars that a program breaks: "first", "again", "work", "planning", "meanwhile", "after"."""
    kept = {
        "first": row["auto"]["first"] <= FIRST_TIMES * row["jit"]["first"] + FIRST_MORE,
        "again": row["again"]["first"] <= FIRST_TIMES * row["jit_again"]["first"],
        "work": work_ratio(row) <= WORK_OF_ANY,
        "planning": planning_ratio(row) <= PLANNING_OF_ANY,
        "meanwhile": row["auto"]["meanwhile"]["slow"] <= row["jit"]["calls"]["slow"] + SLOW,
        "after": row["auto"]["after"] >= AFTER,
    }
    return [name for name, is_kept in kept.items() if not is_kept]


def work_ratio(row: Mapping[str, Any]) -> float:
    """Processor time until nothing more goes on, less a second, over that of the first call of ``jax.jit``."""
    spent = row["auto"]["first_work"] + row["auto"]["work"] - 1.0
    return float(max(spent, 0.0) / row["jit"]["first_work"])


def mean_work(rows: Sequence[Mapping[str, Any]]) -> float:
    """The geometric mean of ``work_ratio``; less than ``jax.jit`` counts as one, since a second is taken off."""
    return geometric_mean([max(work_ratio(row), 1.0) for row in rows])


def planning_ratio(row: Mapping[str, Any]) -> float:
    """Processor time of planning alone over that of XLA's compilation."""
    return float(row[_PLANNED]["planning"] / row[_PLANNED]["xla"])


def mean_planning(rows: Sequence[Mapping[str, Any]]) -> float:
    """The geometric mean of ``planning_ratio``."""
    return geometric_mean([planning_ratio(row) for row in rows])


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="The first minute, caches empty")
    table.add_column("program")
    for column in (
        "jax.jit",
        "auto",
        "jit again",
        "again",
        "work / jit",
        "plan / XLA",
        "settled",
        "slow calls",
        "verdict",
        "speed",
    ):
        table.add_column(column, justify="right")
    table.add_column("breaks")
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["program"], "failed", row["failed"])
            continue
        auto = row["auto"]
        table.add_row(
            row["program"],
            *(format_seconds(row[kind]["first"]) for kind in _KINDS),
            f"{work_ratio(row):.1f}",
            f"{planning_ratio(row):.2f}",
            format_seconds(auto["settled"]),
            f"{auto['meanwhile']['slow']:.1%} ({row['jit']['calls']['slow']:.1%})",
            auto["state"],
            f"{auto['after']:.2f}",
            " ".join(broken(row)),
        )
    done = [row for row in rows if row["failed"] is None]
    if done:
        speed = geometric_mean([row["auto"]["after"] for row in done])
        means = f"{mean_work(done):.1f}", f"{mean_planning(done):.2f}"
        table.add_row("geometric mean", "", "", "", "", *means, "", "", "", f"{speed:.2f}")
    return table
