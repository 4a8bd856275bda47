"""``python -m tests.faults.soak --minutes 60``: processes that stitch, are killed at random, and share a cache at its
limit, with a compiler that fails one time in ten and a disk that fills and empties.

Prints what a reader wants to know: calls made, kills, wrong results (none), processes and folders left (none), the
most memory that a process had, and the most that the cache held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2 << 20
"""Bytes of the cache: a fraction of what the workers make."""

COMPILER = """#!/bin/sh
case "$*" in *--version*) exec {real} "$@";; esac
n=$(od -An -N1 -tu1 /dev/urandom)
case $((n % 40)) in
  0) echo 'internal trouble' >&2; exit 4;;
  1) while [ "$1" != -o ]; do shift; done; echo garbage > "$2"; exit 0;;
  2) kill -KILL $$;;
  3) exec sleep 1000;;
esac
[ -e {full} ] && {{ echo 'error writing: No space left on device' >&2; exit 1; }}
exec {real} "$@"
"""
"""Of forty runs one fails, one lies, one is killed and one hangs; all fail while the disk is full."""


def work(number: int) -> None:
    """A worker: new and old functions, until it is told to end. Says each call's outcome in a line."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jax_stitch import stitch_jit

    rng = random.Random(number)
    x = np.random.default_rng(0).standard_normal((16, 48)).astype(np.float32)
    warnings.simplefilter("ignore")

    def make(k: int):
        scale = np.float32(1 + k / 64)

        def fun(x):
            if k % 3 == 0:
                return jax.nn.softmax(x * scale, -1) + x.sum(-1, keepdims=True)
            if k % 3 == 1:
                return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + scale)
            return jnp.cumsum(jnp.tanh(x * scale), -1)

        return fun

    old = []
    while True:
        if old and rng.random() < 0.7:
            fun, stitched = rng.choice(old)
        else:
            fun = make(rng.randrange(64))
            stitched = stitch_jit(fun, mode=rng.choice(["now", "now", "async", "off"]))
            old = [*old[-20:], (fun, stitched)]
        found, expected = stitched(x), fun(x)
        wrong = not np.allclose(found, expected, rtol=1e-4, atol=1e-4)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(json.dumps({"wrong": wrong, "memory": resident, "files": len(os.listdir("/proc/self/fd"))}), flush=True)
        if rng.random() < 0.02:
            stitched.clear_cache()
            jax.clear_caches()


@dataclass
class Counts:
    """What has happened so far."""

    calls: int = 0
    wrong: int = 0
    kills: int = 0
    died: list[str] = field(default_factory=list)
    memory: int = 0
    files: int = 0
    cache: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.worker is not None:
        work(wanted.worker)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        return soak(Path(folder), wanted.minutes * 60, wanted.processes, random.Random(wanted.seed))


def soak(root: Path, seconds: float, count: int, rng: random.Random) -> int:
    """Runs the workers for so long; returns an exit status."""
    from jax_stitch.compile import toolchain

    (root / "temporary").mkdir(mode=0o700)
    compiler = root / "c++"
    compiler.write_text(COMPILER.format(real=shlex.join(toolchain.compiler()), full=root / "full"))
    compiler.chmod(0o755)
    counts, workers, started = Counts(), {}, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(workers) < count:
            started += 1
            workers[started] = start(root, started, rng)
        time.sleep(0.5)
        if rng.random() < 0.05:
            full = root / "full"
            full.unlink() if full.exists() else full.touch()
        look(root, workers, counts)
        if rng.random() < count / 160:  # each lives for about 80 seconds
            number = rng.choice(sorted(workers))
            workers.pop(number)[0].kill()
            counts.kills += 1
    for process, _ in workers.values():
        process.kill()
    for process, _ in workers.values():
        process.wait()
    return report(root, counts)


def start(root: Path, number: int, rng: random.Random) -> tuple[subprocess.Popen[bytes], Path]:
    """A worker, and the file that it writes to."""
    output = root / f"{number}.jsonl"
    settings = {
        **{"JAX_STITCH_CACHE_DIR": str(root / "cache"), "JAX_STITCH_CACHE_MAX_SIZE": str(LIMIT)},
        **{"TMPDIR": str(root / "temporary"), "CXX": str(root / "c++"), "JAX_STITCH_COMPILE_TIMEOUT": "20"},
        **{"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
    }
    command = [sys.executable, "-m", "tests.faults.soak", "--worker", str(rng.randrange(1 << 30))]
    with output.open("ab") as target, (root / f"{number}.err").open("wb") as errors:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=target, stderr=errors, cwd=ROOT)
    return process, output


def look(root: Path, workers: dict[int, tuple[subprocess.Popen[bytes], Path]], counts: Counts) -> None:
    """Counts what workers have said, and which of them ended by themselves."""
    for number, (process, _) in list(workers.items()):
        if process.poll() is not None:
            counts.died.append(f"{process.returncode}: {(root / f'{number}.err').read_text()[-2000:]}")
            del workers[number]
    for output in root.glob("*.jsonl"):
        lines = output.read_bytes().split(b"\n")
        for line in lines[:-1]:
            if line.startswith(b"{"):
                said = json.loads(line)
                counts.calls += 1
                counts.wrong += said["wrong"]
                counts.memory = max(counts.memory, said["memory"])
                counts.files = max(counts.files, said["files"])
        if lines[:-1]:  # What was counted goes; a line may be lost, which is none the less a call.
            os.truncate(output, 0)
    sizes = (p.stat().st_size for p in (root / "cache").rglob("*") if p.is_file()) if (root / "cache").exists() else ()
    try:
        counts.cache = max(counts.cache, sum(sizes))
    except FileNotFoundError:  # removed meanwhile
        return


def report(root: Path, counts: Counts) -> int:
    """Prints the figures. What dead workers compiled in goes with the next process that compiles."""
    from jax_stitch.compile import scratch

    time.sleep(5)
    orphans = [p.name for p in Path("/proc").glob("[0-9]*") if is_of(p, root)]
    for orphan in orphans:
        os.kill(int(orphan), signal.SIGKILL)
    scratch.sweep(root / "temporary")
    left = sorted(p.name for p in (root / "temporary").iterdir())
    shutil.rmtree(root / "cache", ignore_errors=True)
    print(
        f"{counts.calls} calls, {counts.kills} kills, {counts.wrong} wrong results, {len(counts.died)} processes died "
        f"by themselves, {len(orphans)} orphans, {len(left)} folders left, at most {counts.memory / 1e6:.0f} MB and "
        f"{counts.files} open files in a process, at most {counts.cache / 1e6:.1f} MB in a cache of "
        f"{LIMIT / 1e6:.1f} MB"
    )
    for death in counts.died[:5]:
        print(death)
    return bool(counts.wrong or counts.died or orphans or left)


def is_of(process: Path, root: Path) -> bool:
    """Whether a process was started by a worker: it has the folder in its environment."""
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return (
            state != "Z"
            and process.name != str(os.getpid())
            and str(root).encode() in (process / "environ").read_bytes()
        )
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
