"""``python -m bench``: workloads under ``jax.jit`` and ``stitch_jit``, measured here or planned for a described GPU."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from bench import (
    accesses,
    attention,
    autotune,
    copies,
    evaluators,
    hlo,
    loops,
    peers,
    planners,
    resources,
    sectors,
    suites,
    threads,
    units,
    verify,
)
from bench.files import write_json
from bench.first_minute import command as first_minute
from bench.run import ATTACHED, Options, constants, run
from bench.small import command as small
from bench.small import inside, predicted
from bench.tables import summary
from bench.witness import command as witness
from bench.workloads import ALL
from jax_stitch import devices
from jax_stitch.util import platform

Commands = Any
"""The type of ``add_subparsers``'s result, for which argparse has no public name."""
INCOMPLETE = 10
"""The exit status of a run without faults that used up its time before it was complete."""


def _choose_workloads(parser: argparse.ArgumentParser, suite: str) -> None:
    """Add the options that choose workloads, with ``suite`` as the default suite."""
    parser.add_argument("--suite", choices=suites.NAMES, default=suite, help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit status: 1 if a workload failed or is wrong, 2 for wrong use, or ``INCOMPLETE``."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of JAX Stitch.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    for add in (
        _add_run,
        _add_report,
        _add_device,
        _add_loops,
        first_minute.add,
        _add_threads,
        _add_resources,
        _add_sectors,
        copies.add,
        accesses.add,
        witness.add,
        small.add,
        inside.add,
        predicted.add,
        attention.add,
        units.add,
        _add_planners,
        _add_evaluators,
        _add_autotune,
        _add_verify,
        _add_hlo,
    ):
        add(commands)
    options = parser.parse_args(argv)
    command = options.command
    try:
        return int(command(parser, options))
    except KeyboardInterrupt:
        print("interrupted; what was found so far is in the file of --json, if that was given", file=sys.stderr)
        return 130


def _add_loops(commands: Commands) -> None:
    parser = commands.add_parser("loops", help="time per step of loops, over batch sizes and lengths")
    parser.add_argument("--device", choices=ATTACHED, default="cpu", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=list(loops.LOOPS), choices=tuple(loops.LOOPS), metavar="LOOP")
    parser.add_argument("--batches", nargs="+", type=int, default=list(loops.BATCHES), help="(default: %(default)s)")
    parser.add_argument("--steps", nargs="+", type=int, default=list(loops.STEPS), help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="to time each point (default: %(default)s)")
    parser.add_argument(
        "--most-work",
        type=int,
        default=100_000_000,
        help="rows times steps of the largest point (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to FILE after each point, and plots beside it"
    )
    parser.set_defaults(command=_loops)


def _loops(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if min(*options.batches, *options.steps) < 1:
        parser.error("--batches and --steps are at least 1")
    if not any(b * s <= options.most_work for b in options.batches for s in options.steps):
        parser.error(f"no size has at most {options.most_work:,} rows times steps; see --most-work")
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = options.only, options.batches, options.steps
    return 0 if loops.run(console, options.seconds, options.most_work, options.json, *sizes) else 1


def _add_threads(commands: Commands) -> None:
    parser = commands.add_parser("threads", help="one core of the CPU against all, under jax.jit and stitch_jit")
    _choose_workloads(parser, "micro")
    parser.add_argument("--seconds", type=float, default=2.0, help="to time each workload (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each workload")
    parser.set_defaults(command=_threads)


def _threads(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    cases = _cases(parser, options)
    if not hasattr(os, "sched_getaffinity"):
        parser.error("this system does not tell which cores a process may use; run it on Linux")
    return threads.run(cases, options.seconds, options.limit, options.json, Console(stderr=True))


def _add_resources(commands: Commands) -> None:
    parser = commands.add_parser("resources", help="registers, shared memory and occupancy of kernels on five GPUs")
    parser.add_argument("--suite", choices=suites.NAMES, default="micro", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.set_defaults(command=_resources)


def _resources(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    cases = _cases(parser, options)
    return resources.run(cases, options.dtype, options.json, Console(stderr=True))


def _add_sectors(commands: Commands) -> None:
    parser = commands.add_parser("sectors", help="the design's table, with bytes from counted sectors")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument(
        "--most-blocks", type=int, default=256, help="of a kernel that can do with a few (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.set_defaults(command=_sectors)


def _sectors(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    console = Console(stderr=True)
    return sectors.run(options.only, options.small, options.dtype, options.most_blocks, options.json, console)


def _add_planners(commands: Commands) -> None:
    parser = commands.add_parser("planners", help="the planners beside each other, and how long they take")
    parser.add_argument("--device", default="h200", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=None, choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument(
        "--layers", nargs="*", type=int, default=list(planners.LAYERS), help="of training steps (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each workload")
    parser.set_defaults(command=_planners)


def _planners(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    _check_device(parser, options.device)
    console = Console(width=None if sys.stdout.isatty() else 200)
    only = planners.WORKLOADS if options.only is None else options.only
    return 0 if planners.run(console, options.device, only, options.layers, options.json) else 1


def _add_evaluators(commands: Commands) -> None:
    parser = commands.add_parser("evaluators", help="predicted against measured times of the workloads' kernels")
    parser.add_argument("--device", choices=ATTACHED, default="cpu", help="(default: %(default)s)")
    parser.add_argument("--suite", choices=suites.NAMES, default="all", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument(
        "--sizes", choices=("small", "usual", "both"), default="both", help="of the workloads (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=0.2, help="to time each kernel (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=1200.0, help="seconds in all (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench/results"), help="folder of figures and plot (default: %(default)s)"
    )
    parser.set_defaults(command=_evaluators)


def _evaluators(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    gpu = options.device != "cpu"
    both = {"small": (True,), "usual": (False,), "both": (True, False)}[options.sizes]
    sizes = [suites.cases(options.suite, only=options.only, small=small, gpu=gpu) for small in both]
    cases = [case for of_workload in zip(*sizes, strict=True) for case in of_workload]
    if not cases:
        parser.error(f"none of {', '.join(options.only)} is in the suite {options.suite!r}; try --suite all")
    console = Console(width=None if sys.stdout.isatty() else 200)
    verdict = evaluators.run(cases, options.device, options.seconds, options.budget, options.out, console)
    if verdict is None or not verdict.enough:
        return INCOMPLETE
    return 0 if verdict.agrees else 1


def _add_autotune(commands: Commands) -> None:
    parser = commands.add_parser("autotune", help="is any autotuned function slower than jax.jit?")
    _choose_workloads(parser, "all")
    parser.add_argument("--device", choices=ATTACHED, default="cpu", help="(default: %(default)s)")
    parser.add_argument("--processes", type=int, default=autotune.PROCESSES, help="for each (default: %(default)s)")
    parser.add_argument("--budget", type=float, help="seconds after which no further workload is begun")
    parser.add_argument("--all-candidates", action="store_true", help="autotune=True; without, autotune='top3'")
    parser.add_argument("--seconds", type=float, default=3.0, help="to time each workload (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for each workload (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each workload")
    parser.set_defaults(command=_autotune)


def _autotune(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    cases = _cases(parser, options)
    console = Console(width=None if sys.stdout.isatty() else 160)
    choice = True if options.all_candidates else "top3"
    how = autotune.How(options.device, choice, options.seconds, options.limit, options.budget, options.processes)
    well = autotune.run(cases, how, options.json, console)
    return INCOMPLETE if well is None else 0 if well else 1


def _add_verify(commands: Commands) -> None:
    parser = commands.add_parser("verify", help="what verify=True adds to a first call, on the CPU")
    _choose_workloads(parser, "all")
    parser.add_argument("--seconds", type=float, default=1800.0, help="in all (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each workload")
    parser.set_defaults(command=_verify)


def _verify(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    cases = _cases(parser, options)
    return verify.run(cases, options.seconds, options.json, Console(width=None if sys.stdout.isatty() else 160))


def _add_hlo(commands: Commands) -> None:
    parser = commands.add_parser("hlo", help="plans and results from dumps of HLO, beside those from functions")
    _choose_workloads(parser, "all")
    parser.add_argument(
        "--devices", nargs="*", default=["cpu", "h200"], metavar="NAME", help="to plan for (default: cpu h200)"
    )
    parser.add_argument("--no-results", action="store_true", help="plan only, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE, after each")
    parser.add_argument(
        "--join",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="run nothing: these files' rows to --json, and a table",
    )
    parser.set_defaults(command=_hlo)


def _hlo(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.join:
        if options.json is None:
            parser.error("--join writes to --json FILE: name it")
        hlo.join(options.join, options.json)
        return 0
    platform.settle()
    for name in options.devices:
        _check_device(parser, name)
    cases = _cases(parser, options)
    console = Console(width=None if sys.stdout.isatty() else 200)
    return hlo.run(cases, options.devices, not options.no_results, options.json, console)


def _cases(parser: argparse.ArgumentParser, options: argparse.Namespace, gpu: bool = False) -> list[suites.Case]:
    cases = suites.cases(options.suite, only=options.only, small=options.small, gpu=gpu)
    if not cases:
        parser.error(f"none of {', '.join(options.only)} is in the suite {options.suite!r}; try --suite all")
    return cases


def _check_device(parser: argparse.ArgumentParser, name: str) -> None:
    try:
        devices.get(name)
    except devices.UnknownDeviceError as error:
        parser.error(str(error))


def _add_run(commands: Commands) -> None:
    parser = commands.add_parser("run", help="measure workloads, or plan them for a GPU that need not be there")
    parser.add_argument("--suite", choices=suites.NAMES, default="micro", help="(default: %(default)s)")
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="cpu, cuda, or a name of `python -m jax_stitch devices`: launches and bytes alone (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results to FILE, after each workload")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests: to try the benchmark itself")
    parser.add_argument("--seconds", type=float, default=4.0, help="to time each workload (default: %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds for each step of one (default: %(default)s)"
    )
    parser.add_argument("--budget", type=float, help="seconds after which no further workload is begun")
    parser.add_argument("--jobs", type=int, default=1, help="workloads at a time, timed alone (default: %(default)s)")
    parser.add_argument("--no-cold", action="store_true", help="do not compile with empty caches first")
    parser.add_argument("--no-ungraphed", action="store_true", help="on a GPU, do not time without CUDA graphs too")
    parser.add_argument("--no-peers", action="store_true", help="do not time other ways to compute the same")
    parser.set_defaults(command=_run)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    if options.device not in ATTACHED:
        _check_device(parser, options.device)
    cases = _cases(parser, options, gpu=options.device != "cpu")
    console = Console(width=None if sys.stdout.isatty() else 200)
    skipped = peers.missing()
    if skipped is not None and options.device in ATTACHED and not options.no_peers:
        console.print(skipped, highlight=False, markup=False)
    how = Options(
        options.device,
        options.dtype,
        options.seconds,
        options.limit,
        options.budget,
        cold=not options.no_cold,
        peers=not options.no_peers,
        ungraphed=not options.no_ungraphed,
        jobs=options.jobs,
    )
    results = run(cases, how, options.json, console)
    console.print(summary(results.rows), highlight=False)
    reached = [row for row in results.rows if row.reached]
    if any(row.status in ("wrong", "failed") for row in reached):
        return 1
    return INCOMPLETE if len(reached) < len(results.rows) else 0


def _add_device(commands: Commands) -> None:
    parser = commands.add_parser("device", help="measure what the cost model assumes: launches, copies, launchers")
    parser.add_argument("--device", choices=ATTACHED, default="cpu", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds (default: %(default)s)")
    parser.set_defaults(command=_device)


def _device(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    found = constants(options.device, options.limit)
    if options.json is not None:
        write_json(options.json, found)
    print(json.dumps(found, indent=1))
    return 1 if any("failed" in part for part in found.values()) else 0


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser("report", help="tables and plots of result files")
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="files that `run --json` wrote")
    parser.add_argument("--out", type=Path, default=Path("bench/results/report"), help="folder (default: %(default)s)")
    parser.set_defaults(command=_report)


def _report(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from bench.report import report

    try:
        written = report(options.results, options.out)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print("\n".join(map(str, written)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
