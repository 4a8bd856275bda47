"""``python -m bench``: timings of the workloads, and the table of kernel launches on a described GPU."""

from __future__ import annotations

import argparse
import json
import platform as machine
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
from rich.console import Console

from bench import launches, loops, micro
from bench.workloads import WORKLOADS
from jax_stitch import platform


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns the exit status: 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of JAX Stitch.")
    commands = parser.add_subparsers(required=True, dest="command")
    run = commands.add_parser("run", help="time the workloads under jax.jit and stitch_jit")
    run.add_argument("--suite", choices=tuple(micro.SUITES), default="micro")
    run.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="what JAX runs them on")
    run.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    run.add_argument("--seconds", type=float, default=4.0, help="for timing each workload (default: %(default)s)")
    table = commands.add_parser("launches", help="count kernel launches and bytes: XLA, stitched, the design's target")
    table.add_argument("--device", default="h200", help="a known device (default: %(default)s)")
    whole = commands.add_parser("loops", help="time whole loops on the CPU, and count their launches on an H200")
    whole.add_argument("--batch", type=int, default=2048)
    whole.add_argument("--steps", type=int, default=1000)
    whole.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    for command in (run, table):
        command.add_argument(
            "--only", nargs="+", default=[], choices=tuple(WORKLOADS), metavar="WORKLOAD", help="these alone"
        )
        command.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)

    if options.command == "loops":
        jax.config.update("jax_platforms", "cpu")
        loops.run(options.batch, options.steps, options.json)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120)  # wide enough for the tables, in a log too
    result: micro.Result | launches.Result
    if options.command == "run":
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[options.device])
        result = micro.run(options.suite, options.dtype, options.only, options.seconds, console)
    else:
        platform.settle()
        result = launches.run(options.device, options.only, console)
    if options.json is not None:
        about = {"jax": jax.__version__, "python": machine.python_version(), "machine": machine.machine()}
        options.json.write_text(json.dumps({"about": about, **result.to_dict()}, indent=2) + "\n", encoding="utf-8")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
