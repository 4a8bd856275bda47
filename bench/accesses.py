"""How wide the accesses of global memory are in the machine code of kernels, compiled for a GPU that need not be there,
and how near the predicted time is to that of the bytes alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from rich.console import Console

from bench.about import about
from bench.files import write_json
from bench.sass import disassembled, disassembler, widths_of
from bench.suites import Case, cases
from bench.tables import markdown
from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.tune.spills import fit
from jax_stitch.latency import latency
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util import platform
from jax_stitch.util.suggestion import UsageError

WORKLOADS = (
    "adamw",
    "adamw_clipped",
    "lamb",
    "momentum",
    "softmax_first",
    "group_norm",
    "group_norm_and_gradient",
    "layer_norm_gradient",
    "training_step",
)
"""The optimizers, and what an audit of the machine code found to access 4 or 8 bytes at a time."""

WIDTHS = (128, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True)
class Accesses:
    """Of one kernel: instructions by the bits that they move, and seconds."""

    workload: str
    size: tuple[int, ...]
    kernel: str
    widths: dict[int, int]
    predicted: float
    bytes_alone: float
    """What the latency-evaluator gives the memory."""


def rows_of(case: Case, device_name: str) -> list[Accesses]:
    device = devices.get(device_name)
    assert device.sm is not None
    function, shapes = case.workload.abstract(case.size, jnp.dtype("float32"))
    stitched = fit(stitch_capture(capture(function, shapes, device), device), device.sm)
    found = []
    for kernel in stitched.kernels:
        told = latency(kernel.scheduled, device)
        found.append(
            Accesses(
                case.workload.name,
                case.size,
                kernel.source.name,
                widths_of(disassembled(compile_ptx(kernel.source, device.sm).cubin)),
                sum(phase.seconds for phase in told.phases),
                sum(phase.memory for phase in told.phases),
            )
        )
    return found


def table(rows: Sequence[Accesses]) -> str:
    lines = [
        [
            f"{row.workload} [{' x '.join(map(str, row.size))}]",
            row.kernel[:40],
            *(str(row.widths.get(width, "-")) for width in WIDTHS),
            f"{row.predicted * 1e6:.1f} us",
            f"{row.predicted / row.bytes_alone:.2f}" if row.bytes_alone else "-",
        ]
        for row in rows
    ]
    return markdown(["workload", "kernel", *(f"{width} bits" for width in WIDTHS), "predicted", "/ bytes alone"], lines)


def add(commands: Any) -> None:
    """The command, among those of ``python -m bench``."""
    parser = commands.add_parser("accesses", help="how wide the accesses of global memory are")
    parser.add_argument("--only", nargs="+", default=[], choices=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--small", action="store_true", help="the size of the tests")
    parser.add_argument("--device", default="h200", help="a described GPU (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.set_defaults(command=_command)


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    platform.settle()
    try:
        disassembler()  # Asked before minutes of planning.
    except UsageError as missing:
        parser.error(str(missing))
    console = Console(stderr=True)
    rows: list[Accesses] = []
    for case in cases("all", only=options.only or WORKLOADS, small=options.small):
        rows += rows_of(case, options.device)
        console.print(f"{case.workload.name}: {len(rows)} kernels so far", highlight=False, markup=False)
        if options.json is not None:
            write_json(options.json, {"about": about(options.device), "rows": [asdict(row) for row in rows]})
    print(table(rows))
    return 0
