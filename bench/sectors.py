"""Bytes that kernels move, from the sectors they touch: the design's table, counted in the checking mode.

For a described GPU at full size, with nothing estimated from shapes: the kernels' own accesses are counted, those of
all blocks, or of some where a kernel's blocks do not wait for each other. A sector counts once in each phase of a
grid, and again where a block reads it after it has brought in more than its share of the level-2 cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

import jax.numpy as jnp
from rich.console import Console

from bench.files import write_json
from bench.tables import markdown
from bench.workloads import ALL
from bench.workloads.base import Size
from jax_stitch import devices, stitch_jit
from jax_stitch.backend.compile import compile_ptx, occupancy, resident_blocks
from jax_stitch.backend.launch.element_types import byte_size
from jax_stitch.checking import BufferTraffic, check
from jax_stitch.checking.findings import SECTOR
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.tune.spills import fit
from jax_stitch.pipeline import StitchedKernel, stitch_capture


@dataclass(frozen=True, slots=True)
class Target:
    """What the design wants of a workload: launches, and bytes over the bound (None: it names none)."""

    workload: str
    launches: int
    ratio: float | None = None
    size: Size | None = None
    """Where it is counted, if not at the benchmarked size."""


TABLE = (
    Target("softmax_last", 1, 1.05),
    Target("layer_norm", 1, 1.05),
    Target("rms_norm_rope", 1, 1.05),
    Target("softmax_long_row", 1, 1.5),
    Target("softmax_first", 1),
    Target("softmax_middle", 1),
    Target("layer_norm_gradient", 2, 1.1),
    Target("layer_norm_and_gradient", 2, 1.1),
    Target("residual_dropout_layer_norm", 1),
    Target("cross_entropy", 1, 1.05),
    Target("cross_entropy_gradient", 1, 1.05),
    Target("negative_log_likelihood", 1, 1.05),
    Target("negative_log_likelihood_gradient", 1, 1.05),
    Target("batch_norm", 2),
    Target("batch_norm_gradient", 2),
    Target("adamw", 2, size=(12, 96)),
    Target("adamw_clipped", 3, size=(12, 96)),
    Target("cumsum", 1),
    Target("logsumexp", 1),
    Target("standardise", 2),
)
"""The design's rows but for loops and whole models. A tolerance of 1.05 stands where it says "no slower"."""

TOGETHER = 16
"""Neighbouring blocks that are run where not all are: neighbours may share sectors, and whole clusters have to run."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One row of the table."""

    workload: str
    size: tuple[int, ...]
    dtype: str
    launches: int
    xla_launches: int
    target_launches: int
    bytes: int
    """Of device memory that stitched kernels move, counted, and what XLA's own kernels beside them read and write."""
    bytes_of_warps: int
    """Of all sectors of all accesses: what the caches serve."""
    xla_bytes: int
    bound_bytes: int
    target_ratio: float | None
    blocks: int
    """That were run, of ``grid``."""
    grid: int
    findings: int

    @property
    def ratio(self) -> float:
        return self.bytes / self.bound_bytes

    @property
    def holds(self) -> bool:
        """Whether launches and bytes are what the design wants, with no finding."""
        within = self.target_ratio is None or round(self.ratio, 2) <= self.target_ratio
        return within and self.launches <= self.target_launches and not self.findings


def count(target: Target, size: Size, dtype: str, device: Device, most_blocks: int) -> Counted:
    """Plans a workload for a device and counts; ``most_blocks`` of a kernel are run where it can do with a few."""
    function, shapes = ALL[target.workload].abstract(size, jnp.dtype(dtype))
    plan = stitch_jit(function).plan(*shapes, device=device.name)
    assert device.sm is not None
    stitched = fit(stitch_capture(capture(function, shapes, device), device), device.sm)
    memory = warps = run = grid = findings = 0
    for kernel in stitched.kernels:
        chosen = _chosen(kernel, most_blocks)
        found = check(kernel.source, [None] * len(kernel.source.inputs), chosen).findings
        scale = kernel.source.grid / max(found.blocks, 1)
        share = device.l2_bytes // SECTOR // _resident(kernel.source, device)
        sizes = _sectors(kernel.source)
        memory += kernel.launches * sum(_moved(t, sizes[t.name], scale, share) for t in found.traffic)
        warps += kernel.launches * round(found.bytes_by_warps * scale)
        run, grid = run + found.blocks, grid + kernel.source.grid
        findings += len(found.faults)
    left = sum(k.bytes for k in plan.stitched_traffic.kernels if k.opcode != "custom-call")
    return Counted(
        workload=target.workload,
        size=size,
        dtype=dtype,
        launches=plan.launches,
        xla_launches=plan.xla_launches,
        target_launches=target.launches,
        bytes=memory + left,
        bytes_of_warps=warps,
        xla_bytes=plan.xla_bytes,
        bound_bytes=plan.bound_bytes,
        target_ratio=target.ratio,
        blocks=run,
        grid=grid,
        findings=findings,
    )


def _chosen(kernel: StitchedKernel, most: int) -> list[int] | None:
    """Blocks to run: runs of neighbours spread over the grid; None for all, which phases and unlike parts need."""
    grid = kernel.source.grid
    if grid <= most or kernel.source.phases or len(kernel.scheduled.parts) > 1:
        return None
    runs = max(1, most // TOGETHER)
    starts = sorted({k * (grid - TOGETHER) // max(runs - 1, 1) // TOGETHER * TOGETHER for k in range(runs)})
    return [b for start in starts for b in range(start, start + TOGETHER)]


def _resident(source: KernelSource, device: Device) -> int:
    """Blocks that are on the device at a time."""
    assert device.sm is not None
    kernel = compile_ptx(source, device.sm)
    held = occupancy(kernel.registers, kernel.shared_bytes + source.shared_bytes, source.block, device)
    return max(1, min(source.grid, resident_blocks(held, device, source.cluster)))


def _sectors(source: KernelSource) -> dict[str, int]:
    """Of each buffer, by name."""
    kinds = (("in", source.inputs), ("out", source.outputs), ("scratch", source.scratch))
    return {f"{kind}{k}": ceil(byte_size(t) / SECTOR) for kind, tensors in kinds for k, t in enumerate(tensors)}


def _moved(traffic: BufferTraffic, sectors: int, scale: float, share: int) -> int:
    """Bytes to and from one buffer: of sectors touched, which some blocks stand for (but no more than there are), and
    of those read again that the cache no longer has.
    """
    read, written = traffic.read, traffic.written
    if scale > 1:
        read, written = (min(round(n * scale), sectors) for n in (read, written))
    return SECTOR * (read + written + round(traffic.read_again(share) * scale))


def table(rows: Sequence[Counted], device: str) -> str:
    """The rows as Markdown."""
    header = ("workload", "launches: XLA", "stitched", "at most", "bytes / bound: XLA", "stitched", "at most")
    lines = [
        (
            f"{row.workload} [{' x '.join(map(str, row.size))}] {row.dtype}",
            *(f"{row.xla_launches:,}", f"{row.launches:,}", f"{row.target_launches}"),
            *(f"{row.xla_bytes / row.bound_bytes:.2f}", f"{row.ratio:.2f}"),
            "-" if row.target_ratio is None else f"{row.target_ratio:.2f}",
            f"{row.bytes_of_warps / row.bound_bytes:.2f}",
            f"{row.blocks:,} of {row.grid:,}",
            str(row.findings or "none"),
        )
        for row in rows
    ]
    return "\n".join(
        [
            f"{device}, described: launches per call; bytes of stitched kernels from the 32-byte sectors they touch in "
            "the checking mode, each once in every phase of a kernel, and again where the level-2 cache does not hold "
            "it till a block reads it next; by warps: all sectors of all accesses, caches or not.",
            "",
            markdown((*header, "by warps", "blocks run", "findings"), lines, right=range(1, 8)),
        ]
    )


def run(only: Sequence[str], small: bool, dtype: str, most_blocks: int, json: Path | None, console: Console) -> int:
    """Counts the rows of the table and prints it; the exit status is 1 where one does not hold."""
    device = devices.get("h200")
    found: list[Counted] = []
    for target in TABLE:
        if only and target.workload not in only:
            continue
        workload = ALL[target.workload]
        size = workload.test_sizes[0] if small else target.size or workload.size
        found.append(count(target, size, dtype, device, most_blocks))
        if json is not None:
            write_json(json, {"device": device.name, "rows": [asdict(row) for row in found]})
        row = found[-1]
        verdict = "holds" if row.holds else "DOES NOT HOLD"
        text = f"{row.workload}: {row.launches} launches, {row.ratio:.3f} of the bound: {verdict}"
        console.print(text, highlight=False, markup=False)
    print(table(found, device.name))
    return 0 if all(row.holds for row in found) else 1
