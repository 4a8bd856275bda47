"""``python -m bench.gpu.counters``: what the hardware counts of each stitched kernel, by NVIDIA's Nsight Compute.

``--prepare`` plans workloads for a described GPU and compiles their kernels into a folder, on any machine. ``--count``
launches them there, each once and by itself, on random inputs: seconds, and sectors of 32 bytes at the level-2 cache
and at the memory, caches empty at each kernel's begin. Neither JAX nor a planner takes the GPU's time.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from bench.files import write_json
from bench.suites import cases
from bench.tables import markdown
from bench.workloads import ALL
from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.devices import attached
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.jit.tune import stitch_and_tune
from jax_stitch.latency import latency
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName

METRICS = {
    "gpu__time_duration.sum": "nanoseconds",
    "lts__t_sectors_op_read.sum": "level2_read",
    "lts__t_sectors_op_write.sum": "level2_written",
    "dram__sectors_read.sum": "memory_read",
    "dram__sectors_write.sum": "memory_written",
}
"""Level-2 cache counts an access twice that comes from its other half: about one and a half times all accesses."""
MARK = "counted: "
BUFFERS = ("inputs", "outputs", "scratch")


def prepare(names: Sequence[str], device_name: str, folder: Path) -> None:
    """Writes each workload's kernels, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = folder / f"{name}.pickle"
        if not file.exists():
            rows = list(kernels_of(name, device_name))
            file.write_bytes(pickle.dumps(rows))
            print(f"{name}: {len(rows)} kernels", flush=True)


def kernels_of(name: str, device_name: str) -> Iterator[dict[str, Any]]:
    """A workload's kernels at its size for GPUs, those that are alike once, as plain values."""
    device = devices.get(device_name)
    assert device.sm is not None
    function, shapes = ALL[name].abstract(ALL[name].gpu_size, jnp.float32)
    try:
        stitched = stitch_and_tune(
            capture(function, shapes, device), device, device, PlannerName.BEAM, "", Autotune.OFF
        )
    except Unstitchable:
        return
    rows: dict[int, dict[str, Any]] = {}
    for kernel in stitched.kernels:
        source = kernel.source
        if id(source) in rows:
            rows[id(source)]["launches"] += kernel.launches
            continue
        made = compile_ptx(source, device.sm)
        rows[id(source)] = {
            **{"name": source.name, "cubin": made.cubin, "registers": made.registers, "launches": kernel.launches},
            **{"grid": source.grid, "block": source.block, "shared": source.shared_bytes, "waits": source.waits},
            **{"cluster": source.cluster, "phases": bool(source.phases)},
            **{kind: [(t.dtype, tuple(t.dims)) for t in getattr(source, kind)] for kind in BUFFERS},
            "bytes": kernel.scheduled.bytes_read + kernel.scheduled.bytes_written,
            "predicted": latency(kernel.scheduled, device, made).seconds,
        }
    yield from rows.values()


def launch_all(folder: Path, seconds: float) -> None:
    """Launches each kernel twice, the second time watched: the profiler's side. The smaller files come first."""
    driver, deadline = ctypes.CDLL("libcuda.so.1"), time.monotonic() + seconds
    for file in sorted(folder.glob("*.pickle"), key=lambda file: file.stat().st_size):
        for row in pickle.loads(file.read_bytes()):
            if time.monotonic() > deadline:
                return
            rest = row["grid"], row["block"], row["shared"], row["waits"], row["cluster"]
            function = attached.load(row["cubin"], row["name"], *rest)
            arrays = [_array(*t, drawn=kind == "inputs") for kind in BUFFERS for t in row[kind]]
            if row["phases"]:
                arrays.append(attached.cupy().zeros(1, np.uint64))
            pointers = [int(array.data.ptr) for array in arrays]
            for watched in (False, True):
                if watched:
                    driver.cuProfilerStart()
                function.launch(pointers)
                attached.cupy().cuda.Device().synchronize()
            driver.cuProfilerStop()
            print(f"{MARK}{file.stem} {row['name']}", flush=True)
            del arrays
        attached.cupy().get_default_memory_pool().free_all_blocks()


def _array(dtype: str, dims: Sequence[int], *, drawn: bool) -> Any:
    """Of random values where it is read: integers are taken for indices."""
    cupy, plain = attached.cupy(), ELEMENT_TYPES[dtype].numpy
    plain = plain if plain.kind in "iuf" and plain.isbuiltin == 1 else np.dtype(f"u{plain.itemsize}")
    size = max(1, prod(dims))
    if not drawn:
        return cupy.zeros(size, plain)
    if plain == np.float32:
        return cupy.random.random(size, dtype=np.float32) * 0.9 + 0.1
    return cupy.random.randint(0, 2 if dtype == "pred" else 1000, size).astype(plain)


def counted(lines: Iterable[str]) -> list[dict[str, Any]]:
    """A row for each launch, with its workload, from what the profiler and its program have written to one stream."""
    rows: dict[str, dict[str, Any]] = {}
    labels: list[list[str]] = []
    heads: list[str] = []
    for line in lines:
        if line.startswith(MARK):
            labels.append(line.removeprefix(MARK).split())
        if not line.startswith('"'):
            continue
        cells = next(csv.reader([line]))
        if cells[0] == "ID":
            heads = cells
            continue
        said = dict(zip(heads, cells, strict=True))
        row = rows.setdefault(said["ID"], {"name": said["Kernel Name"]})
        if (metric := METRICS.get(said["Metric Name"])) is not None:
            row[metric] = float(said["Metric Value"].replace(",", ""))
    own = [row for row in rows.values() if row["name"].startswith("stitch_")]
    for row, (workload, name) in zip(own, labels, strict=False):
        if row["name"] != name:
            raise ValueError(f"{row['name']} was counted where {name} was launched")
        row["workload"] = workload
    return [row for row in own if "workload" in row]


def count(folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Runs the profiler; the rows, each with what the folder knows of its kernel."""
    metrics = ",".join(METRICS)
    command = [
        *("ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--print-units", "base"),
        *("--metrics", metrics, sys.executable, "-m", "bench.gpu.counters", "--launch", str(folder)),
        *("--budget", f"{seconds - 10:.0f}"),
    ]
    with tempfile.TemporaryFile("w+") as said:
        subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, timeout=seconds, env={**os.environ}, check=False)
        said.seek(0)
        rows = counted(said.read().splitlines())
    known = {
        (file.stem, row["name"]): row for file in folder.glob("*.pickle") for row in pickle.loads(file.read_bytes())
    }
    kept = ("launches", "grid", "block", "registers", "bytes", "predicted")
    return [{**row, **{k: known[row["workload"], row["name"]][k] for k in kept}} for row in rows]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each kernel, by workload: sectors as they were counted, bytes as they were planned."""
    lines = []
    for row in rows:
        measured, predicted = row["nanoseconds"] * 1e-9, row["predicted"]
        ratio = f"{measured / predicted:.2f}" if predicted else "-"
        times = format_seconds(measured), format_seconds(predicted) if predicted else "-", ratio
        sectors = [f"{row[name]:,.0f}" for name in list(METRICS.values())[1:]]
        launched = f"{row['launches']:,}", f"{row['grid']:,} x {row['block']:,}", str(row["registers"])
        lines.append((row["workload"], row["name"], *launched, *times, f"{row['bytes'] / 32:,.0f}", *sectors))
    heads = ("workload", "kernel", "launches", "blocks", "registers", "time", "predicted", "ratio", "planned sectors")
    counted_heads = ("level 2 read", "written", "memory read", "written")
    return markdown((*heads, *counted_heads), lines, right=(2, *range(4, 13)))


def main(argv: Sequence[str] | None = None) -> int:
    """Prepares or counts; the exit status is 1 where nothing was counted."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.counters", description=__doc__)
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="plan and compile into FOLDER; needs no GPU")
    parser.add_argument("--count", type=Path, metavar="FOLDER", help="launch what is in FOLDER under the profiler")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="h200", metavar="NAME", help="to plan for (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], choices=tuple(ALL), metavar="WORKLOAD", help="these alone")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for the GPU (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, a table beside it")
    options = parser.parse_args(argv)
    if options.launch is not None:
        launch_all(options.launch, options.budget)
        return 0
    if options.prepare is not None:
        prepare([case.workload.name for case in cases("all", only=options.only)], options.device, options.prepare)
    if options.count is None:
        return 0
    rows = count(options.count, options.budget)
    if options.json is not None:
        from bench.about import about

        write_json(options.json, {"about": about("cuda"), "rows": rows})
        options.json.with_suffix(".md").write_text(table(rows) + "\n", encoding="utf-8")
    print(f"{table(rows[:5])}\n{len(rows)} kernels")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
