"""``python -m tests.faults.bounds``: programs that are large in one way, under ``jax.jit`` and in the default mode.

For each the time of the first result, of this process's processor time and by the clock, and the most memory that it
and its child processes had together. Both may be at most twice what ``jax.jit`` takes; of memory, what one more process
with JAX in it takes comes on top, which is that of the planner.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.faults import record

ROOT = Path(__file__).resolve().parents[2]
TIMES = 2.0
MORE_SECONDS = 0.5
"""On top of twice the time: where that is little, it is noise."""

SIZES = {"operations": 20_000, "arguments": 2_000, "outputs": 500, "nesting": 50, "constant": 100, "arrays": 2_048}
SMALL = {"operations": 400, "arguments": 200, "outputs": 60, "nesting": 10, "constant": 10, "arrays": 128}


def measured(kind: str, case: str, size: int, cache: Path) -> dict[str, Any]:
    """What a process of that kind took, with the most memory of it and its children."""
    settings = {
        **{"JAX_STITCH_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
        **{"JAX_STITCH_LOG": "off", "PYTHONPATH": str(ROOT)},
    }
    command = [sys.executable, "-m", "tests.faults.bounds_worker", kind, case, str(size)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=os.environ | settings, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
        most = alone = 0
        while process.poll() is None:
            sizes = memory(process.pid)
            most, alone = max(most, sum(sizes)), max(alone, sizes[0] if sizes else 0)
            time.sleep(0.05)
        assert process.stdout is not None
        said = process.stdout.read().decode()
        process.stdout.close()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(
                f"{kind} of {case} {size} ended with {process.returncode}: {errors.read()[-3000:].decode()}"
            )
    return json.loads(said.splitlines()[-1]) | {"memory": most, "memory_alone": alone}


def memory(pid: int) -> list[int]:
    """Bytes that a process, and each below it, has in memory for itself: pages of files count for nobody."""
    found, waiting = [], [pid]
    while waiting:
        process = Path("/proc") / str(waiting.pop(0))
        try:
            lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
            found.append(sum(int(lines[kind].split()[0]) << 10 for kind in ("RssAnon", "RssShmem")))
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, KeyError):  # gone
            continue
    return found


def compared(case: str, size: int, known: Path, one_more: int) -> dict[str, Any]:
    """The figures of one case, and what of them is beyond the bars. ``known`` has the figures of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(known / "devices", Path(folder) / "devices")
        jit, auto = (measured(kind, case, size, Path(folder)) for kind in ("jit", "auto"))
    beyond = []
    for what in ("first_cpu", "first"):
        if auto[what] > TIMES * jit[what] + MORE_SECONDS:
            beyond.append(f"{what} {auto[what]:.2f} s for {jit[what]:.2f} s")
    if auto["memory"] > TIMES * jit["memory"] + one_more:
        beyond.append(f"{auto['memory'] / 1e6:.0f} MB for {jit['memory'] / 1e6:.0f} MB")
    if not auto["agrees"]:
        beyond.append("another result")
    return {"case": case, "size": size, "jit": jit, "auto": auto, "beyond": beyond}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.bounds", description=__doc__)
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--only", nargs="+", choices=tuple(SIZES), default=tuple(SIZES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    wanted = parser.parse_args()
    sizes = SMALL if wanted.small else SIZES
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        measured("auto", "outputs", 1, Path(folder))  # The first of all on a machine measures its memory.
        one_more = measured("jit", "outputs", 1, Path(folder))["memory"]
        for case in wanted.only:
            rows.append(compared(case, sizes[case], Path(folder), one_more))
            print(json.dumps(rows[-1]), flush=True)
            command = "python -m tests.faults.bounds" + " --small" * wanted.small
            record.keep(wanted.json, "bounds", command, {"a process with JAX": one_more, "rows": rows})
    table = Table("", "size", "first result, s (CPU)", "jax.jit", "memory, MB", "jax.jit", "then", "beyond")
    for row in rows:
        jit, auto = row["jit"], row["auto"]
        times = [f"{r['first']:.2f} ({r['first_cpu']:.2f})" for r in (auto, jit)]
        sizes_ = [f"{r['memory'] / 1e6:.0f}" for r in (auto, jit)]
        table.add_row(row["case"], f"{row['size']:,}", *times, *sizes_, auto["said"], "; ".join(row["beyond"]))
    Console(width=160).print(table)
    return any(row["beyond"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
