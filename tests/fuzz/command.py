"""The command line of the generator."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import pkgutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax

import jax_stitch
from tests.fuzz import child, probes, record, report, run
from tests.fuzz.child import Outcome, Task
from tests.fuzz.program import Program
from tests.fuzz.run import Failure, Summary
from tests.fuzz.script import Script
from tests.fuzz.ways import WEIGHTS, Way


def preload() -> None:
    """Imports all that a child would import, so that it need not."""
    for module in pkgutil.walk_packages(jax_stitch.__path__, "jax_stitch."):
        if "__main__" not in module.name and ".demo" not in module.name:
            importlib.import_module(module.name)
    jax.config.update("jax_traceback_filtering", "off")  # It takes time in every call of a call.
    gc.collect()
    gc.freeze()  # A child's collections neither walk nor copy what was there before it.
    gc.set_threshold(100_000, 50, 1000)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long to run")
    parser.add_argument("--count", type=int, default=0, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one program")
    parser.add_argument("--reduce", type=float, default=90.0, help="seconds for reducing one failure; 0: not")
    parser.add_argument("--way", action="append", choices=list(WEIGHTS), help="only this way (may be repeated)")
    parser.add_argument("--x64", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--without", default="", help="operations to leave out, with commas between")
    parser.add_argument("--json", type=Path, help="file for the summary, written as it goes")
    parser.add_argument("--record", type=Path, help="file of all runs, to which this one is added as it goes")
    parser.add_argument("--reached", type=Path, help="file to which is added what planted faults each program comes to")
    parser.add_argument("--findings", type=Path, help="folder for a script of each failure")
    parser.add_argument("--script", type=Path, action="append", help="run the program of this file in every way")
    parser.add_argument("--each", action="store_true", help="short programs about each operation in turn")
    parser.add_argument("--together", action="store_true", help="the ways of a script in one process")
    parser.add_argument("--program", metavar="SEED:NUMBER", help="show and run this one alone")
    options = parser.parse_args(arguments)
    preload()
    if options.program:
        return one(options)
    if options.script:
        return scripts(options)
    seconds = options.seconds if options.count or options.seconds != float("inf") else 60.0
    print(f"seed {options.seed}, commit {commit()}", flush=True)
    keep = keeper(options)
    summary = run.fuzz(
        tasks(options),
        options.jobs,
        seconds,
        reducing=options.reduce,
        found=lambda f: tell(f, options.findings),
        going=keep,
        each=lambda outcome: note_reached(outcome, options.reached),
    )
    keep(summary)
    print(report.text(summary))
    return 1 if summary.failures else 0


def keeper(options: argparse.Namespace) -> Callable[[Summary], None]:
    """What keeps a run in the files that are asked for, each time with what it has come to."""
    base = record.read(options.record) if options.record else {}
    at = commit()

    def keep(summary: Summary) -> None:
        data = report.data(summary, options.seed, at, first=options.first, each=options.each)
        if options.json:
            record.write(options.json, data)
        if options.record:
            record.write(options.record, record.added(base, data))

    return keep


def note_reached(outcome: Outcome, file: Path | None) -> None:
    """Adds what a program came to (``probes.py``)."""
    if file is None:
        return
    silent = outcome.kind != "undecided" and "reached" not in outcome.counts
    reached = None if silent else list(outcome.counts.get("reached", ()))
    with file.open("a") as lines:
        lines.write(probes.line(outcome.task.seed, outcome.task.number, reached))


def task(options: argparse.Namespace, seed: int, number: int) -> Task:
    return Task(
        seed,
        number,
        allowed=tuple(options.way or ()),
        x64=options.x64,
        without=frozenset(options.without.split(",")) - {""},
        limit=options.limit,
        each=options.each,
    )


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    numbers = itertools.count(options.first)
    chosen = itertools.islice(numbers, options.count) if options.count else numbers
    return (task(options, options.seed, n) for n in chosen)


def one(options: argparse.Namespace) -> int:
    """Runs one program again, and shows all of it."""
    seed, _, number = options.program.partition(":")
    outcome = run.with_users_flags(child.run(task(options, int(seed), int(number))))
    if isinstance(outcome.program, Program):
        print(outcome.program.script(outcome.way.script() if outcome.way else ()))
    print(
        f"# {outcome.kind} {outcome.signature} ({outcome.way}, {outcome.stage}, {outcome.seconds:.1f} s)\n"
        f"{outcome.detail}"
    )
    if outcome.failed and options.reduce:
        tell(Failure(outcome, *run.reduce.reduce(outcome, options.reduce)[:1]), options.findings)
    return int(outcome.failed)


def scripts(options: argparse.Namespace) -> int:
    """Runs the programs of files in these ways, a process for each way or for each file."""
    names = options.way or list(WEIGHTS)
    groups = [names] if options.together else [[n] for n in names]
    failed = 0
    for path in options.script:
        for group in groups:
            ways = tuple(Way(name, options.seed) for name in group)
            outcome = child.run(Task(0, 0, program=Script(path), ways=ways, limit=options.limit))
            failed += outcome.failed
            way = outcome.way.name if outcome.way else ""
            if options.json:
                said = {"kind": outcome.kind, "signature": outcome.signature, "detail": outcome.detail}
                print(json.dumps({"file": path.stem, "way": way, **said}), flush=True)
            else:
                print(f"{path.stem}, {way}: {outcome.kind} {outcome.signature}\n{outcome.detail}".strip(), flush=True)
    return int(failed > 0)


def tell(failure: Failure, folder: Path | None) -> None:
    """Prints a failure, and writes its script where asked."""
    text = report.failure(failure)
    print(text, flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{time.strftime('%H%M%S')}_{failure.outcome.kind}_{failure.outcome.task.number}.py").write_text(text)


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
