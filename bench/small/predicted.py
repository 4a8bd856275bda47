"""``python -m bench predicted``: what the cost model says of programs with loops on a CPU, beside what they take.

Each program is priced as XLA runs it and as it is planned, and both are timed, on one core, less the time of a program
of the same arguments and results without work. Loops whose length depends on data are left out: nothing can predict
them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.small.programs import INSIDE, PROGRAMS, USUAL
from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.fusion.calls import call_seconds
from jax_stitch.graph.model import Graph, Node
from jax_stitch.loops.cost.xla_cost import step_seconds
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util.formatting import format_seconds, text_table

FACTOR = 2.0
"""The factor by which a prediction may be off before the program is marked."""
LEAST_SECONDS = 1e-5
"""Programs whose loops take less are left out: the time of the call covers them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One program; times are of a call, in seconds, and ours are None where nothing is stitched."""

    program: str
    xla_predicted: float
    xla_measured: float
    predicted: float | None
    measured: float | None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return measured over predicted: XLA's, and ours if there is one."""
        own = () if self.predicted is None or self.measured is None else (self.measured / self.predicted,)
        return (self.xla_measured / self.xla_predicted, *own)

    @property
    def is_off(self) -> bool:
        """Return whether a prediction is off by more than ``FACTOR``."""
        return not all(1 / FACTOR <= ratio <= FACTOR for ratio in self.ratios)


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("predicted", help="what the cost model says of loops on a CPU, and what they take")
    names = tuple(dict.fromkeys((*USUAL, *INSIDE)))
    parser.add_argument("--only", nargs="+", default=names, choices=tuple(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=0.5, help="to time each program (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, after each program")
    parser.set_defaults(command=_predicted)


def _predicted(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if not hasattr(os, "sched_setaffinity"):
        parser.error("this system does not let a process choose its cores; run it on Linux")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax.config.update("jax_platforms", "cpu")
    device, console = devices.get("cpu"), Console(width=120)
    rows: list[Row] = []
    for name in options.only:
        console.print(f"... {name}", highlight=False)
        rows.extend(_rows(name, device, options.seconds))
        if options.json is not None:
            write_json(options.json, {"about": about("cpu"), "rows": [asdict(row) for row in rows]})
    console.print(table(rows), highlight=False)
    return 0


def _rows(name: str, device: Device, seconds: float) -> Iterator[Row]:
    """Yield a program's figures, if it has loops whose length is known and that take longer than a call."""
    with jax.enable_x64(PROGRAMS[name].doubles):
        function, values = PROGRAMS[name].make()
        args = jax.tree.map(_array if not PROGRAMS[name].doubles else jnp.asarray, values)
        captured = capture(function, args, device)
        try:
            stitched = stitch_capture(captured, device)
        except Unstitchable:
            return
        before = stitched.captured_graph
        loops = list(_loops(before, ()))
        if not loops or not all(n.attributes.get("trip_count") for n in loops):
            return
        plain = jax.jit(function)
        types = jax.eval_shape(function, *args)
        nothing = jax.jit(lambda *_: jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), types), keep_unused=True)
        empty = _seconds(nothing, args, seconds)
        xla = _seconds(plain, args, seconds) - empty
        if xla < LEAST_SECONDS:
            return
        predicted = _price(FusionPlan(before, (), (), {}), device)
        if not stitched.kernels:
            yield Row(name, predicted, xla, None, None)
            return
        ours = _seconds(stitch_jit(function, mode="now"), args, seconds) - empty
        yield Row(name, predicted, xla, _price(stitched.plan, device), ours)


def _price(plan: FusionPlan, device: Device) -> float:
    """Return the seconds of a call of a plan's graph, with the loops that it leaves to XLA."""
    taken = {i for kernel in plan.kernels for p in kernel for i in p.nodes}
    loops = (n.attributes["trip_count"] * step_seconds(n, n.graphs["body"], device) for n in _loops(plan.graph, taken))
    return call_seconds(plan, device) + sum(loops)


def _loops(graph: Graph, taken: Sequence[int] | set[int]) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op == "while" and n.id not in taken)


def _array(value: Any) -> Any:
    """Return a value of 32 bits where it is of floats."""
    return jnp.asarray(value, jnp.float32 if np.asarray(value).dtype.kind == "f" else None)


def _seconds(function: Callable[..., Any], args: Sequence[Any], seconds: float) -> float:
    """Return the least seconds of a call, which other work on the machine changes least."""
    jax.block_until_ready(function(*args))
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, the worst predicted last, and what they say together."""

    def worst(row: Row) -> float:
        return max(max(ratio, 1 / ratio) for ratio in row.ratios)

    cells = [
        (
            row.program,
            format_seconds(row.xla_predicted),
            format_seconds(row.xla_measured),
            f"{row.ratios[0]:.2f}",
            *(("-", "-", "-") if row.predicted is None or row.measured is None else _own(row)),
            "OFF" if row.is_off else "",
        )
        for row in sorted(rows, key=worst)
    ]
    heads = ("program", "XLA predicted", "measured", "ratio", "ours predicted", "measured", "ratio", "")
    text = text_table(heads, cells, right=(1, 2, 3, 4, 5, 6))
    if not rows:
        return text
    off = sum(row.is_off for row in rows)
    middle = statistics.median(worst(row) for row in rows)
    return f"{text}\n{len(rows)} programs: {off} off by more than {FACTOR:g} times; the median, {middle:.2f} times"


def _own(row: Row) -> tuple[str, str, str]:
    return format_seconds(row.predicted or 0.0), format_seconds(row.measured or 0.0), f"{row.ratios[1]:.2f}"


def sentence(rows: Sequence[Mapping[str, Any]], source: str) -> str:
    """Return in words how far the predictions of a file of results are off, for the page of measurements."""
    ratios = {row["program"]: _off(row) for row in rows}
    off = sorted((name for name, ratio in ratios.items() if ratio > FACTOR), key=lambda name: -ratios[name])
    return (
        f"What the cost model says of {len(ratios)} small programs with loops beside what they take, one core: as XLA "
        f"runs them and as planned, the worse of both is off by {statistics.median(ratios.values()):.2f} times in the "
        f"median, by more than {FACTOR:g} in {len(off)} ({', '.join(off)}) (`python -m bench predicted`, {source})."
    )


def _off(row: Mapping[str, Any]) -> float:
    """Return the factor by which the worse prediction of a program is off."""
    pairs = [(row["xla_measured"], row["xla_predicted"]), (row["measured"], row["predicted"])]
    return max(max(a / b, b / a) for a, b in pairs if a is not None)
