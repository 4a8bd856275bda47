"""``python -m bench.warm``: starting a program that ran before, under ``stitch_jit`` beside ``jax.jit``.

Each start is a process of its own that imports JAX, makes the state of the demo's training step and runs one step, with
JAX's persistent compilation cache and our own filled by earlier processes. Both kinds are started in turn; a second
``jax.jit`` is measured in the same way: what it differs from the first is noise. Modules are read as bytecode, as
those of installed packages are, and Python's garbage collector has seen what was imported for both: else it would look
at hundreds of thousands of objects of JAX and Flax in the middle of one start or after the end of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.turns import KINDS, Row, order, row_of

BAR = 1.3
"""A stitched start may take this much of one of ``jax.jit``."""
PARTS = ("start", "import", "trace", "lower", "compile", "run")
DEMO = Path(__file__).resolve().parents[1] / "jax_stitch" / "demo" / "block.py"

CHILD = """
import gc, json, runpy, sys, time
began = float(sys.argv[1])
import jax
import jax.numpy as jnp

demo = runpy.run_path(sys.argv[3])  # not as a part of our package, which jax.jit does not import
step, args = demo["make_training_step"]((8, 128, 256), jnp.float32)
jax.block_until_ready(args)
prepared = time.time() - began
gc.collect()
gc.freeze()
times = [time.time()]
if sys.argv[2] == "stitched":
    from jax_stitch import stitch_jit as jit
else:
    from jax import jit
times.append(time.time())
traced = jit(step).trace(*args)
times.append(time.time())
lowered = traced.lower()
times.append(time.time())
compiled = lowered.compile()
times.append(time.time())
jax.block_until_ready(compiled(*args))
times.append(time.time())
kernels = lowered.as_text().count("@jax_stitch_host_kernel") + lowered.as_text().count("@__gpu$xla.gpu.ptx")
seconds = [prepared, *(b - a for a, b in zip(times, times[1:]))]
print(json.dumps({"seconds": seconds, "kernels": kernels}))
"""


def start(kind: str, caches: Path) -> list[float]:
    """Seconds of each of ``PARTS`` in a new process."""
    environment = os.environ | {
        "JAX_STITCH_CACHE_DIR": str(caches / "jax_stitch"),
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CHILD, repr(time.time()), kind, str(DEMO)]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    said = json.loads(output)
    if (said["kernels"] > 0) != (kind == "stitched"):
        raise RuntimeError(f"the program of the {kind} start has {said['kernels']} stitched kernels")
    return list(said["seconds"])


def measure(rounds: int, caches: Path) -> tuple[list[Row], dict[str, float]]:
    """The rows, and the seconds that the first start of each kind took, with empty caches."""
    cold = {kind: sum(start(kind, caches)) for kind in KINDS[:2]}
    samples: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for n in range(rounds):
        for kind in order(n):
            samples[kind].append(start(kind, caches))

    def part(name: str, parts: slice) -> Row:
        return row_of(name, {kind: [sum(sample[parts]) for sample in samples[kind]] for kind in KINDS})

    rows = [part("from the start of the process to the first result", slice(None))]
    rows.append(part("from the import of jit to the first result", slice(1, None)))
    return rows + [part(f"  {name}", slice(n, n + 1)) for n, name in enumerate(PARTS)], cold


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where a start takes longer than the bar allows."""
    parser = argparse.ArgumentParser(prog="python -m bench.warm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="jax-stitch-warm-") as folder:
        rows, cold = measure(options.rounds, Path(folder))

    table = Table(title="Seconds of a start with filled caches")
    table.add_column("")
    for column in ("jax.jit", "stitched", "ratio", "jax.jit again"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.plain:.3f}",
            f"{row.stitched:.3f}",
            f"{row.ratio:.2f}" * (row.plain > 1e-3),
            f"{row.noise:.2f}",
        )
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    console.print(f"with empty caches: {cold['plain']:.1f} s, stitched {cold['stitched']:.1f} s", highlight=False)
    if options.json is not None:
        found = {"about": about("cpu"), "bar": BAR, "rounds": options.rounds, "cold": cold}
        write_json(options.json, {**found, "rows": [asdict(row) for row in rows]})
    return 0 if rows[0].ratio <= BAR and rows[1].ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
