"""``python -m bench units``: each kernel of a plan beside XLA's own for the same operations, timed and predicted.

Kernels that lose hide in programs that gain. A unit is what stays or goes together: one kernel, or several of which one
hands another the partial results of a reduction. Programs are workloads, or those of a Python file.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from bench import suites
from bench.about import about
from bench.files import write_json
from jax_stitch import devices
from jax_stitch.backend.compile import target_of
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion.pays import is_priced, xla_seconds_of
from jax_stitch.jit.tune import race
from jax_stitch.jit.tune.candidates import planned
from jax_stitch.jit.tune.outside_tracing import apart
from jax_stitch.jit.tune.programs import unit_race
from jax_stitch.jit.tune.slower import without_slower
from jax_stitch.jit.tune.spills import fit
from jax_stitch.jit.tune.units import Unit, by_graph, units_of
from jax_stitch.latency import latency
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util.formatting import format_seconds, text_table


@dataclass(frozen=True, slots=True)
class Row:
    """One unit; times are in seconds, and predictions that there are none of are NaN."""

    program: str
    kernels: tuple[str, ...]
    xla: float
    own: float
    xla_predicted: float
    own_predicted: float

    @property
    def gain(self) -> float:
        """How many times as fast as XLA's kernels it is."""
        return self.xla / self.own


def of_program(name: str, fun: Any, arguments: Sequence[Any], device: Device) -> Iterator[Row]:
    """Yield the units of a function of arrays, less those in which a loop's length depends on values."""
    types = [jax.tree.map(_type, x) for x in arguments]
    stitched = fit(without_slower(stitch_capture(capture(fun, types, device), device)), target_of(device))
    seen: set[str] = set()
    for kernels in by_graph(stitched.kernels).values():
        for unit in units_of(kernels[0].scheduled.graph, kernels):
            key = planned(unit).key
            if key not in seen and not unit.is_endless:
                seen.add(key)
                yield _row(name, unit, device)


def _type(x: Any) -> jax.ShapeDtypeStruct:
    return x if isinstance(x, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(jnp.shape(x), jax.dtypes.result_type(x))


def _row(name: str, unit: Unit, device: Device) -> Row:
    with apart(device):
        xla, own = race.measure(unit_race(unit, [planned(unit)], device)).values()
    patterns = tuple(part.pattern for k in unit.kernels for part in k.scheduled.parts)
    inside = {i for p in patterns for i in p.inside}
    foretold = xla_seconds_of(unit.graph, inside, device) if is_priced(unit.graph, patterns) else nan
    mine = sum(latency(k.scheduled, device).seconds for k in unit.kernels)
    return Row(name, tuple(k.source.name for k in unit.kernels), xla.seconds, own.seconds, foretold, mine)


def programs_of(file: Path) -> dict[str, tuple[Any, Sequence[Any]]]:
    """Return the programs of a Python file whose ``PROGRAMS`` has functions that return a function and its arguments,
    by name.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: make() for name, make in module.PROGRAMS.items()}


def table(rows: Sequence[Row]) -> str:
    """Return the units as a table, those that lose most last."""
    cells = [
        (
            r.program,
            ", ".join(r.kernels),
            *(format_seconds(t) for t in (r.xla, r.own)),
            *(f"{x:.2f}" for x in (r.gain, r.xla / r.xla_predicted, r.own / r.own_predicted)),
        )
        for r in sorted(rows, key=lambda r: r.xla - r.own, reverse=True)
    ]
    head = ("program", "kernels", "XLA", "stitched", "gain", "XLA / predicted", "stitched / predicted")
    return text_table(head, cells, right=(2, 3, 4, 5, 6))


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("units", help="each kernel of a plan beside XLA's own for the same operations")
    parser.add_argument("--suite", choices=suites.NAMES, default="micro", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PROGRAM", help="these alone")
    parser.add_argument("--small", action="store_true", help="workloads at the sizes of tests")
    parser.add_argument("--programs", type=Path, metavar="FILE", help="a Python file with PROGRAMS in place of a suite")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each program")
    parser.set_defaults(command=_run)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    jax.config.update("jax_platforms", "cpu")
    if options.programs is not None and not options.programs.is_file():
        parser.error(f"there is no file {options.programs}")
    if options.programs is not None:
        programs = {n: p for n, p in programs_of(options.programs).items() if not options.only or n in options.only}
    else:
        cases = suites.cases(options.suite, only=options.only, small=options.small)
        programs = {c.workload.name: c.workload.abstract(c.size, jnp.float32) for c in cases}
    if not programs:
        parser.error(f"there is no program {', '.join(options.only)}")
    device, console, rows = devices.get("cpu"), Console(width=None if sys.stdout.isatty() else 200), list[Row]()
    for name, (fun, arguments) in programs.items():
        rows += of_program(name, fun, arguments, device)
        console.print(f"{name}: {len(rows)} units so far", highlight=False)
        if options.json is not None:
            write_json(options.json, {"about": about("cpu"), "rows": [asdict(r) for r in rows]})
    console.print(table(rows), highlight=False)
    return 0
