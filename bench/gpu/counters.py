"""``python -m bench.gpu.counters``: what the hardware counts of each stitched kernel, by NVIDIA's Nsight Compute.

Sectors of 32 bytes at the level-2 cache and at the memory, and time, caches empty at each kernel's begin. One process
runs all workloads, one call of each is watched. Another edition of the package is watched with its folder in
``PYTHONPATH``: nothing here needs this one.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

METRICS = {
    "gpu__time_duration.sum": "nanoseconds",
    "lts__t_sectors_op_read.sum": "l2_sectors_read",
    "lts__t_sectors_op_write.sum": "l2_sectors_written",
    "dram__sectors_read.sum": "sectors_read",
    "dram__sectors_write.sum": "sectors_written",
}
MARK = "watched: "


def watched(names: Sequence[str], seconds: float) -> None:
    """Runs the workloads; the profiler's side. What is reached within the time is said on standard output."""
    import jax
    import jax.numpy as jnp

    from bench.workloads import ALL
    from jax_stitch import stitch_jit

    driver = ctypes.CDLL("libcuda.so.1")
    deadline = time.monotonic() + seconds
    for name in names:
        if time.monotonic() > deadline:
            print(f"not reached: {name}", flush=True)
            continue
        try:
            with jax.default_device(jax.devices("cpu")[0]):
                function, args = ALL[name].make(ALL[name].gpu_size, jnp.float32)
            args = jax.device_put(args, jax.devices()[0])
            program = stitch_jit(function).lower(*args).compile()
            jax.block_until_ready(program(*args))
            print(f"{MARK}{name}", flush=True)
            driver.cuProfilerStart()
            jax.block_until_ready(program(*args))
            driver.cuProfilerStop()
            print(f"{MARK}", flush=True)
            del args, program
            jax.clear_caches()
        except Exception as error:
            print(f"failed: {name}: {error!r:.300}", flush=True)


def counted(lines: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The kernels of each workload, from what both have written to one stream, in the order of their launches."""
    found: dict[str, list[dict[str, Any]]] = {}
    workload, heads, by_id = "", [], dict[str, dict[str, Any]]()
    for text in lines:
        if text.startswith(MARK):
            workload = text.removeprefix(MARK).strip() or workload
            continue
        if not text.startswith('"'):
            continue
        cells = next(csv.reader([text]))
        if cells[0] == "ID":
            heads = cells
            continue
        row = dict(zip(heads, cells, strict=True))
        if row["ID"] not in by_id:
            by_id[row["ID"]] = kernel = {"name": row["Kernel Name"], "grid": row["Grid Size"]}
            found.setdefault(workload, []).append(kernel)
        name = METRICS.get(row["Metric Name"])
        if name is not None:
            by_id[row["ID"]][name] = float(re.sub(",", "", row["Metric Value"]))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the profiler over the chosen workloads and writes what it counted."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.counters", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="WORKLOAD")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds in all (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.watched:
        watched(options.names, options.budget)
        return 0
    command = [
        *("ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--print-units", "base"),
        *("--metrics", ",".join(METRICS), "--launch-count", "2000", "--target-processes", "application-only"),
        *(sys.executable, "-P", __file__, "--watched", "--budget", f"{options.budget - 20:.0f}", *options.names),
    ]
    environment = {**os.environ, "JAX_STITCH_MODE": "now", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer=".strip()
    with tempfile.TemporaryFile("w+") as said:
        try:
            status = subprocess.run(
                command, stdout=said, stderr=subprocess.STDOUT, env=environment, timeout=options.budget
            ).returncode
        except subprocess.TimeoutExpired:
            status = 10
        said.seek(0)
        lines = said.read().splitlines()
    print("\n".join(line for line in lines if not line.startswith('"'))[-6000:])
    found = counted(lines)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, kernels in found.items():
        total = sum(k.get("nanoseconds", 0.0) for k in kernels)
        print(f"{name}: {len(kernels)} launches, {total * 1e-3:.1f} us")
    return status if found else 1


if __name__ == "__main__":
    sys.exit(main())
