"""``python -m bench witness``: every workload's kernels before and after, side by side."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.about import ROOT, about
from bench.files import write_json
from bench.suites import Case, cases
from bench.witness import cpu, table
from bench.witness.child.facts import FORMAT
from bench.witness.editions import FIRST, FOLDER, SIDES, Asked, Edition, editions, ended
from bench.workloads import ALL

RESULTS = ROOT / "bench" / "results"


def add(commands: Any) -> None:
    """The command, among those of ``python -m bench``."""
    parser = commands.add_parser("witness", help="kernels of an earlier commit and of this one, side by side")
    parser.add_argument("--before", default=FIRST, metavar="COMMIT", help="(default: %(default)s)")
    parser.add_argument("--device", choices=("h200", "cpu"), default="h200", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a workload (default: %(default)s)")
    parser.add_argument("--no-sectors", action="store_true", help="do not run kernels in the checking mode")
    parser.add_argument(
        "--again",
        action="store_true",
        help="do this commit's plans, or the times, once more: build/witness has those of an earlier run",
    )
    parser.add_argument("--table", action="store_true", help="run nothing: write the table of what there is")
    parser.add_argument("--rounds", type=int, default=8, help="in which a CPU is timed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round on a CPU (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="(default: bench/results)")
    parser.set_defaults(command=_command)


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    console = Console(stderr=True)
    chosen = cases("all", only=options.only, small=options.small, gpu=options.device != "cpu")
    folder = FOLDER / (f"{options.device}-small" if options.small else options.device)
    name = "witness_cpu" if options.device == "cpu" else "witness"
    if not options.small and options.before == FIRST:  # What the record is of.
        restored(RESULTS / f"{name}.json", folder)
    if not options.table:
        with editions(options.before) as both:
            if options.device == "cpu":
                _timed(chosen, both, folder, options, console)
            else:
                _planned(chosen, both, folder, options, console)
    found = _found(chosen, folder)
    write_json(options.out / f"{name}.json", {"about": about(options.device), "rows": found})
    text = cpu.text(found) if options.device == "cpu" else table.text(found, table.measured(_counted()))
    if left := [case.workload.name for case in chosen if case.workload.name not in {row["workload"] for row in found}]:
        text += f"\nNot done yet: {', '.join(left)}.\n"
    (options.out / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if table.UNEXPLAINED in text else 0


def _counted() -> list[dict[str, Any]]:
    """What an H200's counters said of kernels, where that is there."""
    file = RESULTS / "gpu_kernels.json"
    return list(json.loads(file.read_text())["rows"]) if file.exists() else []


def restored(results: Path, folder: Path) -> None:
    """Gives ``build`` the rows of the committed record that it lacks: on a new machine a run goes on from there."""
    rows = json.loads(results.read_text())["rows"] if results.exists() else []
    for row in rows:
        for part in (*SIDES, "times"):
            file = folder / part / f"{row['workload']}.json"
            if part in row and not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_json(file, row[part])


def _found(chosen: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """What there is of each workload, whole on both sides."""
    rows = []
    for case in chosen:
        row: dict[str, Any] = {"workload": case.workload.name, "size": list(case.size)}
        for part in (*SIDES, "times"):
            file = folder / part / f"{case.workload.name}.json"
            if file.exists():
                row[part] = json.loads(file.read_text())
        is_there = "times" in row or all(row.get(side, {}).get("format") == FORMAT for side in SIDES)
        rows += [row] * is_there
    return rows


def _planned(
    chosen: Sequence[Case],
    both: Sequence[Edition],
    folder: Path,
    options: argparse.Namespace,
    console: Console,
) -> None:
    """First all plans, then all sectors: those take longest, and the table can do without."""
    for what in ("plan",) if options.no_sectors else ("plan", "sectors"):
        for case in chosen:
            for edition in both:
                file = folder / edition.side / f"{case.workload.name}.json"
                said = _one(what, case, edition, file, options)
                console.print(f"{what} {case.workload.name} {edition.side}: {said}", highlight=False, markup=False)


def _one(what: str, case: Case, edition: Edition, file: Path, options: argparse.Namespace) -> str:
    """One workload of one side, unless it is known; what was said of it."""
    before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    done = "done" if what == "plan" else "sectors_done"
    is_old = before.get("format") != FORMAT
    again = options.again and edition.side == "after"
    if what == "plan" and done in before and not is_old and not again:
        return "known"
    if what == "sectors" and (done in before or is_old or not before.get("kernels")):
        return "known"
    if what == "sectors" and not file.with_suffix(".pickle").exists():  # The record has no kernels, only what they do.
        file.unlink()
        _one("plan", case, edition, file, options)
        planned = json.loads(file.read_text())
        _keep_sectors(planned, before)
        write_json(file, planned)
    size = json.dumps(list(case.size))
    command = edition.command("facts.py", what, options.device, case.workload.name, size, str(file))
    why = ended(edition, command, options.limit, file.with_suffix(".log"))
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"kernels": []}
    if what == "plan":
        found["commit"] = edition.commit
        _keep_sectors(found, before)
    if why:
        found[f"{what} failed"] = why
    write_json(file, found)
    return why or f"{len(found['kernels'])} kernels"


def _keep_sectors(found: dict[str, Any], before: dict[str, Any]) -> None:
    """Gives kernels the sectors that those of an earlier run had whose instructions and blocks are the same. Of kernels
    in several parts whose blocks do not all run at a time, files of before ``FORMAT`` 3 have what was counted from too
    few blocks of some parts."""
    counted = [k for k in before.get("kernels", ()) if k.get("sectors") is not None]
    known = {(k["code"], k["grid"], k["block"]): k for k in counted}
    for kernel in found["kernels"]:
        same = known.get((kernel["code"], kernel["grid"], kernel["block"]))
        if same is not None and (kernel["parts"] == 1 or "grid" in kernel["composition"] or "parts" in same):
            kernel |= {"sectors": same["sectors"], "faults": same["faults"]}
    if found["kernels"] and all(k.get("sectors") is not None for k in found["kernels"]):
        found["sectors_done"] = True


def _timed(
    chosen: Sequence[Case],
    both: Sequence[Edition],
    folder: Path,
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Each workload in a process of each edition, which are asked in turn."""
    for case in chosen:
        file = folder / "times" / f"{case.workload.name}.json"
        if file.exists() and not options.again:
            continue
        try:
            found = _in_turn(case, both, options)
        except RuntimeError as error:
            found = {"failed": str(error)}
        write_json(file, {"commits": {e.side: e.commit for e in both}, **found})
        console.print(f"{case.workload.name}: {cpu.line(found)}", highlight=False, markup=False)


def _in_turn(case: Case, both: Sequence[Edition], options: argparse.Namespace) -> dict[str, Any]:
    """In half of the rounds one edition's process starts first, in the other half the other's: the first one gets the
    larger pages of memory, which makes a tenth."""
    samples: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    size = json.dumps(list(case.size))
    for order in (both, both[::-1]):
        asked: dict[str, Asked] = {}
        try:
            for edition in order:
                asked[edition.side] = Asked(edition, "times.py", case.workload.name, size)
                asked[edition.side].wait()
            for n in range((options.rounds + 1) // 2):
                for side in SIDES if n % 2 == 0 else SIDES[::-1]:
                    samples[side].append(asked[side].ask(seconds=options.seconds))
        finally:
            for child in asked.values():
                child.end()
    stitched = {side: [s["stitched"] for s in found] for side, found in samples.items()}
    plain = [s["plain"] for found in samples.values() for s in found]
    ratios = [new / old for old, new in zip(stitched["before"], stitched["after"], strict=True)]
    middle = sorted(ratios)
    return {
        "plain": statistics.median(plain),
        **{side: statistics.median(found) for side, found in stitched.items()},
        "ratio": statistics.median(ratios),
        "least": middle[len(middle) // 4],
        "most": middle[-1 - len(middle) // 4],
        "samples": stitched,
    }
