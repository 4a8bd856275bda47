"""Run by either edition of the package, in a process of its own: one workload's kernels for a described GPU.

``python facts.py plan|sectors DEVICE WORKLOAD SIZE FILE``, with that edition's folder in ``PYTHONPATH``. It uses what
both have. What is found is written as it is found, so that who is ended for time leaves what there was.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pickle
import re
import sys
import tomllib
from collections import Counter
from math import ceil
from pathlib import Path
from typing import Any

FORMAT = 3
"""Of the files; what is older is done anew."""
CONSTANTS = Path(__file__).resolve().parents[3] / "jax_stitch" / "devices" / "specs" / "latency_cuda.toml"
"""What this tree takes for granted about GPUs: the one law that both editions' times are of."""
SECTOR = 32
MOST_BLOCKS, MOST_OF_MANY, MANY, TOGETHER = 64, 32, 8, 16
"""Blocks of each part that are run, where it can do with a few, and where there are many parts; and neighbours among
them."""
LOOP = re.compile(r"for \(index (step\w*) = 0; \1 < (\d+); \+\+\1\) \{")
"""The head of a loop of the program whose steps are known in number, in a kernel's text."""
STEPS, STEPS_OF_GRID = (32, 64), (2, 4)
"""Steps of a longer loop that are run: so many, and so many more, between which it goes on as it does from there. Where
all blocks of a launch go through each step together, that is long, and there a sector counts in each step anew; else
steps that follow each other may write to one sector, of as many bytes as there are steps here."""
UNDONE = ("MISSING_OUTPUT", "UNWRITTEN")
"""Faults of a kernel that steps are taken from, since what those would have written is not there."""


def first_of(*names: str) -> Any:
    """The first module that this edition has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error
    raise missing


def write(path: Path, values: Any) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(values, indent=1))
    beside.replace(path)


def tensors(of: Any) -> list[str]:
    return [f"{t.dtype}[{','.join(map(str, t.dims))}]" for t in of]


def plan(device_name: str, workload: str, size: tuple[int, ...], out: Path) -> None:
    """Kernels, then launches and bytes of the whole program."""
    import jax.numpy as jnp

    from bench.workloads import ALL
    from jax_stitch import devices, stitch_jit

    planning = first_of("jax_stitch.inspect.report.planning", "jax_stitch.planning")
    kept: list[Any] = []
    inner = planning.stitch_and_tune

    def recorded(*args: Any, **more: Any) -> Any:
        kept.append(inner(*args, **more))
        return kept[-1]

    planning.stitch_and_tune = recorded
    function, shapes = ALL[workload].abstract(size, jnp.dtype("float32"))
    device = devices.get(device_name)
    made = stitch_jit(function).plan(*shapes, device=device_name)
    found: dict[str, Any] = {"format": FORMAT, "seconds": dict(made.seconds), "kernels": []}
    if kept:
        found["kernels"], sources = kernels(kept[-1], made, device)
        out.with_suffix(".pickle").write_bytes(pickle.dumps(sources))
    write(out, found)
    for name, of in (("xla", made.xla_traffic), ("stitched", made.stitched_traffic)):
        left = [k for k in of.kernels if k.opcode != "custom-call"]
        found[name] = {"launches": of.launches, "bytes": of.bytes, "library_launches": of.library_launches}
        launch = 2e-6
        found[name]["others_seconds"] = sum(
            max(k.launches * launch, k.bytes / device.memory_bandwidth) for k in left if not k.library
        )
        found[name]["others_bytes"] = sum(k.bytes for k in left)
        write(out, found)
    found["done"] = True
    write(out, found)


def kernels(stitched: Any, made: Any, device: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """A row for each source, with how often it is launched, and the sources."""
    from jax_stitch.backend.compile import compile_ptx, occupancy, resident_blocks

    rows: dict[int, dict[str, Any]] = {}
    sources: dict[int, Any] = {}
    for kernel, said in zip(stitched.kernels, made.kernels, strict=True):
        source = kernel.source
        if id(source) in rows:
            rows[id(source)]["launches"] += kernel.launches
            continue
        ptx = compile_ptx(source, device.sm)
        shared = ptx.shared_bytes + source.shared_bytes
        held = occupancy(ptx.registers, shared, source.block, device)
        graph = kernel.scheduled.graph
        ops = Counter(graph[i].op for part in kernel.scheduled.parts for i in part.pattern.nodes)
        rows[id(source)] = {
            "name": source.name,
            "launches": kernel.launches,
            "grid": source.grid,
            "block": source.block,
            "composition": list(said.composition),
            "parts": len(kernel.scheduled.parts),
            "reads": tensors(source.inputs),
            "writes": tensors(source.outputs),
            "operations": dict(sorted(ops.items())),
            "code": code_of(ptx.ptx, source.name),
            "instructions": sum(line.startswith("\t") and line.endswith(";") for line in ptx.ptx.splitlines()),
            "registers": ptx.registers,
            "spill_bytes": ptx.spill_bytes,
            "shared_bytes": shared,
            "occupancy": held.share,
            "bytes": said.bytes_read + said.bytes_written,
            "seconds": said.latency.seconds if said.latency is not None else None,
            "least_seconds": least(said.latency, device) if said.latency is not None else None,
        }
        resident = max(1, min(source.grid, resident_blocks(held, device, source.cluster)))
        blocks = [part.blocks for part in kernel.scheduled.parts]
        waits = source.phases or "ST_GRID_BARRIER" in source.text or "ST_GRID_SYNC" in source.text
        apart = not waits and sum(blocks) == source.grid
        sources[id(source)] = (source, blocks if apart else None, device.l2_bytes // SECTOR // resident)
    return list(rows.values()), list(sources.values())


def least(said: Any, device: Any) -> float:
    """The launch, and of each phase the longer of its two terms: the earlier edition's times were below them at times.
    Memory is as fast, and barriers take as long, as in this tree, whatever an edition takes for granted."""
    from jax_stitch.latency import constants_of

    law, own = tomllib.loads(CONSTANTS.read_text()), constants_of(device)
    slower = max(rate for _, rate in own.curve) / (law["reached"] * device.memory_bandwidth)
    barriers = said.start * law["start"] / own.start
    return float(said.launch + barriers + sum(max(p.compute, p.memory * slower) for p in said.phases))


def code_of(ptx: str, name: str) -> str:
    """What is the same where two kernels' instructions are."""
    lines = [line.replace(name, "KERNEL") for line in ptx.splitlines() if not line.lstrip().startswith("//")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def sectors(out: Path) -> None:
    """The sectors of memory that each kernel moves, counted in the checking mode."""
    found = json.loads(out.read_text())
    sources = pickle.loads(out.with_suffix(".pickle").read_bytes())
    for row, (source, parts, share) in zip(found["kernels"], sources, strict=True):
        if "sectors" in row:
            continue
        row["sectors"] = None  # Till it is known: who is ended by this kernel goes on with the next.
        write(out, found)
        row["sectors"], row["faults"] = of_all_steps(source, parts, share)
        write(out, found)
    found["sectors_done"] = True
    write(out, found)


def of_all_steps(source: Any, parts: list[int] | None, share: int) -> tuple[int, int]:
    """The sectors that a kernel moves, and its faults. A kernel with one loop, which is long, is run twice, with fewer
    steps: each of the rest takes what one of those took by which the two runs differ."""
    trips = [int(n) for _, n in LOOP.findall(source.text)]
    few, more = STEPS_OF_GRID if "ST_GRID_SYNC" in source.text else STEPS
    if len(trips) != 1 or trips[0] <= more:
        return of_all_parts(source, parts, share)
    (low, _), (high, faults) = (of_all_parts(shortened(source, n), parts, share, UNDONE) for n in (few, more))
    return high + round((trips[0] - more) * (high - low) / (more - few)), faults


def shortened(source: Any, steps: int) -> Any:
    """The kernel with so many steps in its one loop. Its class is of another kind in either edition."""
    fields = {name: getattr(source, name) for name in type(source).__annotations__}
    text = LOOP.sub(rf"for (index \1 = 0; \1 < {steps}; ++\1) {{", source.text)
    return type(source)(**fields | {"text": text})


def of_all_parts(source: Any, parts: list[int] | None, share: int, ignored: tuple[str, ...] = ()) -> tuple[int, int]:
    """Sectors, and faults but those of the ``ignored`` kinds. Parts are not alike: each has blocks of its own run, that
    stand for the others of that part."""
    counts = [counted(source, share, *some) for some in samples_of(source, parts)]
    return sum(moved for moved, _ in counts), sum(kind not in ignored for _, kinds in counts for kind in kinds)


def counted(source: Any, share: int, blocks: list[int] | None, scale: float) -> tuple[int, list[str]]:
    """The sectors that these blocks move, each ``scale`` times, but of a buffer no more than it has; and the kinds of
    faults."""
    from jax_stitch.checking import check

    seen = check(source, [None] * len(source.inputs), blocks).findings
    kinds = (("in", source.inputs), ("out", source.outputs), ("scratch", source.scratch))
    sizes = {f"{kind}{k}": ceil(bytes_of(t) / SECTOR) for kind, of in kinds for k, t in enumerate(of)}
    total = 0
    for t in seen.traffic:
        read, written = t.read, t.written
        if scale > 1:
            most = sizes.get(t.name, 1)
            read, written = (min(round(n * scale), most) for n in (read, written))
        total += read + written + round(t.read_again(share) * scale)
    return total, [fault.kind.name for fault in seen.faults]


def bytes_of(tensor: Any) -> int:
    from jax_stitch.backend.launch.element_types import byte_size

    return int(byte_size(tensor))


def samples_of(source: Any, parts: list[int] | None) -> list[tuple[list[int] | None, float]]:
    """Blocks to run together, and how many of the same part each stands for; None for all: blocks that wait for each
    other need them. Of a part, runs of neighbours are spread over it."""
    most = MOST_BLOCKS if parts is not None and len(parts) <= MANY else MOST_OF_MANY
    if parts is None or source.grid <= most:
        return [(None, 1.0)]
    found: list[tuple[list[int] | None, float]] = []
    first = 0
    for count in parts:
        if count <= most or count % source.cluster:
            chosen = list(range(count))
        else:
            runs = most // TOGETHER
            starts = sorted({k * (count - TOGETHER) // (runs - 1) // TOGETHER * TOGETHER for k in range(runs)})
            chosen = [b for start in starts for b in range(start, start + TOGETHER)]
        found.append(([first + b for b in chosen], count / len(chosen)))
        first += count
    return found


def main() -> None:
    what, device, workload, size, file = sys.argv[1:]
    if what == "plan":
        plan(device, workload, tuple(json.loads(size)), Path(file))
    else:
        sectors(Path(file))


if __name__ == "__main__":
    main()
