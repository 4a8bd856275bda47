"""Registers, shared memory and occupancy of the kernels of workloads, compiled for GPUs that need not be there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.numpy as jnp
from rich.console import Console

from bench.files import write_json
from bench.suites import Case
from bench.tables import markdown
from jax_stitch import devices
from jax_stitch.backend.compile import PtxKernel, compile_ptx, occupancy
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture, capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import stitch_capture
from jax_stitch.schedule import registers

GPUS = ("t4", "a100", "l4", "h200", "b200")
"""sm_75, sm_80, sm_89, sm_90 and sm_100."""
CAPTURED_FOR = "h200"
"""The GPU whose HLO is planned for all of them: what XLA makes of a program differs little between GPUs."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel takes of one GPU."""

    workload: str
    size: tuple[int, ...]
    dtype: str
    device: str
    sm: str
    kernel: str
    grid: int
    block: int
    registers: int
    estimated: int
    """Registers, by life times, before compilation."""
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    """Static and dynamic, per block."""
    blocks_together: int
    """On a multiprocessor."""
    occupancy: float
    limit: str


def usages(captured: Capture, device: Device, case: Case, dtype: str) -> Iterator[Usage]:
    """Of the kernels of a captured function, planned, laid out and compiled for a GPU."""
    assert device.sm is not None
    try:
        stitched = fit(stitch_capture(captured, device), device.sm)
    except Unstitchable:
        return
    scheduled = {id(k.source): k.scheduled for k in stitched.kernels}
    for source in stitched.sources:
        kernel: PtxKernel = compile_ptx(source, device.sm)
        shared = kernel.shared_bytes + source.shared_bytes
        held = occupancy(kernel.registers, shared, source.block, device)
        yield Usage(
            workload=case.workload.name,
            size=case.size,
            dtype=dtype,
            device=device.name,
            sm=device.sm,
            kernel=source.name,
            grid=source.grid,
            block=source.block,
            registers=kernel.registers,
            estimated=registers(scheduled[id(source)], device),
            spill_bytes=kernel.spill_bytes,
            stack_bytes=kernel.stack_bytes,
            shared_bytes=shared,
            blocks_together=held.blocks,
            occupancy=held.share,
            limit=held.limit,
        )


def table(rows: Sequence[Usage]) -> str:
    """A line for each workload, a column for each GPU: registers, shared memory and occupancy of its kernels, the one
    with the most registers first; at most three.
    """
    by_case: dict[tuple[str, tuple[int, ...], str], dict[str, list[Usage]]] = {}
    for row in rows:
        by_case.setdefault((row.workload, row.size, row.dtype), {}).setdefault(row.device, []).append(row)
    header = ["workload", *(f"{name}: {devices.get(name).sm}" for name in GPUS)]
    lines = []
    for (workload, size, dtype), found in by_case.items():
        cells = [_cell(found.get(name, [])) for name in GPUS]
        lines.append([f"{workload} [{' x '.join(map(str, size))}] {dtype}", *cells])
    spilling = sum(row.spill_bytes > 0 for row in rows)
    return "\n".join(
        [
            "Registers per thread (in brackets: estimated from life times before compilation), shared memory per "
            "block, and the share of a multiprocessor's threads that are on it at a time. "
            f"{len(rows)} kernels compiled, {spilling or 'none'} of them with spilled registers.",
            "",
            markdown(header, lines),
        ]
    )


def _cell(rows: Sequence[Usage], most: int = 3) -> str:
    ordered = sorted(rows, key=lambda row: -row.registers)
    texts = []
    for row in ordered[:most]:
        spilled = f", {row.spill_bytes} B spilled" if row.spill_bytes else ""
        texts.append(
            f"{row.registers} ({row.estimated}) r, {row.shared_bytes / 1024:.3g} KB, {row.occupancy:.0%}{spilled}"
        )
    more = [f"and {len(ordered) - most} more"] if len(ordered) > most else []
    return "; ".join([*texts, *more]) or "-"


def run(cases: Sequence[Case], dtype: str, json: Path | None, console: Console) -> int:
    """Compiles the kernels of each case for each GPU and prints the table; the exit status is 1 where one spills."""
    found: list[Usage] = []
    for case in cases:
        function, shapes = case.workload.abstract(case.size, jnp.dtype(dtype))
        captured = capture(function, shapes, devices.get(CAPTURED_FOR))
        for name in GPUS:
            found += usages(captured, devices.get(name), case, dtype)
        if json is not None:
            write_json(json, {"captured_for": CAPTURED_FOR, "rows": [asdict(row) for row in found]})
        console.print(f"{case.workload.name}: {len(found)} kernels so far", highlight=False, markup=False)
    print(table(found))
    return 1 if any(row.spill_bytes for row in found) else 0
