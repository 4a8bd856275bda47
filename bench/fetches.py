"""Rows that are copied to shared memory by bulk copies (``cp.async.bulk``), beside the same kernels without: registers
and spills as NVIDIA's compiler has them, shared memory, sectors counted in the checking mode, and the predicted time.

    python -m bench.fetches --json bench/results/fetches.json > bench/results/fetches.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.numpy as jnp
from rich.console import Console

from bench.files import write_json
from bench.tables import markdown
from bench.workloads import ALL
from bench.workloads.base import Size
from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.backend.launch.element_types import byte_size
from jax_stitch.checking import check
from jax_stitch.checking.findings import SECTOR
from jax_stitch.devices import Device
from jax_stitch.emit import emit
from jax_stitch.frontend.capture import capture
from jax_stitch.latency import latency
from jax_stitch.pipeline import StitchedKernel, stitch_capture
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.fetched import fetched
from jax_stitch.schedule.split import CLUSTERS
from jax_stitch.util.formatting import format_bytes, format_seconds

WORKLOADS = ("softmax_last", "layer_norm", "layer_norm_gradient", "cross_entropy", "cross_entropy_gradient")
ROWS, COUNTED = 4096, 16
"""Rows of what is planned, and of what is counted access by access."""
PLACES = {"float32": (8192, 16_384, 24_576, 32_768, 57_344), "bfloat16": (32_768, 65_536)}
WAYS = ("plain", "fetched", "cluster")


@dataclass(frozen=True, slots=True)
class Way:
    """One kernel laid out in one way."""

    workload: str
    size: Size
    dtype: str
    way: str
    """One of ``WAYS``: a block for each row without bulk copies, with them, and the fastest cluster by prediction."""
    chosen: bool
    """Whether it is what the planner has taken."""
    inputs: int
    """Whose rows are fetched."""
    threads: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    """Of a block, static and dynamic."""
    blocks_together: int
    """On a multiprocessor."""
    sectors: float
    """That warps and bulk copies ask memory for, over those of the inputs: caches are not looked at."""
    bank_conflicts: int
    """Wavefronts beyond the fewest."""
    bytes: int
    """That memory moves, as the latency-evaluator has it: what its level-2 cache has no longer, again."""
    seconds: float
    """Predicted, with the compiled kernel's registers."""
    estimated: float
    """With registers estimated before compilation, by which the planner chooses."""


def ways(workload: str, places: int, dtype: str, device: Device) -> Iterator[Way]:
    """Of the kernel of a workload whose rows could be fetched, where there is one."""
    found, counted = (
        next((k for k in _kernels(workload, (rows, places), dtype, device) if _may_fetch(k, device)), None)
        for rows in (ROWS, COUNTED)
    )
    if found is None:
        return
    for way in WAYS:
        cluster = 1
        if way == "cluster":
            sizes = [n for n in CLUSTERS if _laid_out(found, device, cluster=n).cluster == n]
            if not sizes:
                continue
            cluster = min(sizes, key=lambda n: latency(_laid_out(found, device, cluster=n), device).seconds)
        kernel = _laid_out(found, device, way == "fetched", cluster)
        small = None if counted is None else _laid_out(counted, device, way == "fetched", cluster)
        yield _measured(kernel, small, way, (workload, (ROWS, places), dtype), found.scheduled, device)


def _kernels(workload: str, size: Size, dtype: str, device: Device) -> Sequence[StitchedKernel]:
    function, shapes = ALL[workload].abstract(size, jnp.dtype(dtype))
    return stitch_capture(capture(function, shapes, device), device).kernels


def _laid_out(kernel: StitchedKernel, device: Device, fetch: bool = False, cluster: int = 1) -> ScheduledKernel:
    made = kernel.scheduled
    return schedule(made.graph, [p.pattern for p in made.parts], device, made.name, cluster=cluster, fetch=fetch)


def _may_fetch(kernel: StitchedKernel, device: Device) -> bool:
    return any(map(fetched, _laid_out(kernel, device, True).parts))


def _measured(
    kernel: ScheduledKernel,
    small: ScheduledKernel | None,
    way: str,
    what: tuple[str, Size, str],
    planned: ScheduledKernel,
    device: Device,
) -> Way:
    assert device.sm is not None
    source = emit(kernel)
    compiled = compile_ptx(source, device.sm)
    predicted = latency(kernel, device, compiled)
    assert predicted.occupancy is not None
    sectors, conflicts = _sectors(small) if small is not None else (0.0, 0)
    inputs = sum(len(fetched(p)) for p in kernel.parts)
    as_planned = planned.cluster == kernel.cluster and sum(len(fetched(p)) for p in planned.parts) == inputs
    return Way(
        *what,
        way=way,
        chosen=as_planned,
        inputs=inputs,
        threads=source.block,
        registers=compiled.registers,
        spill_bytes=compiled.spill_bytes,
        shared_bytes=compiled.shared_bytes + source.shared_bytes,
        blocks_together=predicted.occupancy.blocks,
        sectors=sectors,
        bank_conflicts=conflicts,
        bytes=sum(p.bytes for p in predicted.phases),
        seconds=predicted.seconds,
        estimated=latency(kernel, device).seconds,
    )


def _sectors(kernel: ScheduledKernel) -> tuple[float, int]:
    """Sectors asked for over those of the inputs, and wavefronts of bank conflicts, of all blocks."""
    source = emit(kernel)
    found = check(source, [None] * len(source.inputs)).findings
    asked = sum(t.read_by_warps for t in found.traffic if t.name.startswith("in"))
    return asked * SECTOR / sum(map(byte_size, source.inputs)), found.extra_wavefronts


def table(found: Sequence[Way], device: Device) -> str:
    """A line for each kernel in each way; the planner's has a star."""
    header = (
        "workload",
        "way",
        "threads",
        "registers",
        "spilled",
        "shared",
        "blocks",
        "sectors",
        "bytes",
        "compiled",
        "before",
    )
    lines = [
        (
            f"{w.workload} [{' x '.join(map(str, w.size))}] {w.dtype}",
            f"{w.way}{f' ({w.inputs})' if w.inputs else ''}{' *' if w.chosen else ''}",
            *(str(w.threads), str(w.registers), str(w.spill_bytes), format_bytes(w.shared_bytes)),
            *(str(w.blocks_together), f"{w.sectors:.2f}", format_bytes(w.bytes)),
            *(format_seconds(w.seconds), format_seconds(w.estimated)),
        )
        for w in found
    ]
    ratios = _ratios(found)
    return "\n".join(
        [
            "# Rows fetched by bulk copies",
            "",
            f"`python -m bench.fetches`: {device.name}, described; nothing has run on a GPU. Registers of a thread, "
            f"bytes that it spills and shared memory of a block as compiled for {device.sm}; blocks that a "
            "multiprocessor has room for; sectors of 32 bytes that warps and bulk copies ask for, over those of the "
            f"inputs, counted in the checking mode at {COUNTED} rows, whatever the caches hold; bytes that memory "
            "moves and the time as the latency-evaluator has them, with the registers of the compiled kernel, and as "
            "the planner has it before, with estimated ones. To it, reading again what the level-2 cache still "
            "holds is an instruction and no bytes: it has no figure for that cache's own bandwidth. A star is what is "
            "planned: `fetched` where it is predicted to take less time than without, a cluster where it takes 95% of "
            "that and less than `fetched`. In brackets: inputs whose rows are fetched.",
            "",
            ratios,
            "",
            markdown(header, lines, right=range(2, 11)),
        ]
    )


def _ratios(found: Sequence[Way]) -> str:
    """How often it is planned, and what it gains there."""
    by_case: dict[tuple[str, Size, str], dict[str, Way]] = {}
    for w in found:
        by_case.setdefault((w.workload, w.size, w.dtype), {})[w.way] = w
    taken = [c for c in by_case.values() if c["fetched"].chosen]
    gains = [c["plain"].estimated / c["fetched"].estimated for c in taken]
    compiled = [c["plain"].seconds / c["fetched"].seconds for c in taken]
    asked = [c["plain"].sectors / c["fetched"].sectors for c in taken]
    others = [c for c in by_case.values() if not c["fetched"].chosen]
    slower = [c["fetched"].estimated / c["plain"].estimated for c in others]
    texts = [f"Planned for {len(taken)} of {len(by_case)} kernels"]
    if taken:
        texts.append(
            f"{min(gains):.2f} to {max(gains):.2f} times as fast as without by what the planner predicts, "
            f"{min(compiled):.2f} to {max(compiled):.2f} times with compiled registers, with "
            f"{min(asked):.1f} to {max(asked):.1f} times fewer sectors asked for"
        )
    if slower:
        texts.append(f"the others would take {min(slower):.2f} to {max(slower):.2f} times as long as without")
    return "; ".join(texts) + "."


def main() -> int:
    """The command; 0 where nothing spills more with fetched rows, and none is read with bank conflicts."""
    parser = argparse.ArgumentParser(prog="python -m bench.fetches", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="h200", help="one of sm_90 or newer")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--places", nargs="+", type=int, help="of a row; by default those of the record")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, console = devices.get(options.device), Console(stderr=True)
    if not device.fetches_rows:
        parser.error(f"{device.name} has no bulk copies")
    found: list[Way] = []
    for workload in options.workloads:
        for dtype, sizes in PLACES.items():
            for places in options.places or sizes:
                found += ways(workload, places, dtype, device)
                console.print(f"{workload} {places} {dtype}: {len(found)} kernels so far", highlight=False)
        if options.json is not None:
            write_json(options.json, {"device": device.name, "rows": [asdict(w) for w in found]})
    print(table(found, device))
    spilled = {(w.workload, w.size, w.dtype): w.spill_bytes for w in found if w.way == "plain"}
    copied = [w for w in found if w.way == "fetched"]
    wrong = [w for w in copied if w.bank_conflicts or w.spill_bytes > spilled[w.workload, w.size, w.dtype]]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
