"""``python -m tests.faults.soak --minutes 60``: processes that stitch, are killed at random, and share a cache at its
limit, with a compiler that fails one time in ten and a disk that fills and empties.

Prints what a reader wants to know: calls made, kills, wrong results (none), processes and folders left (none), the
most memory that a process had, and the most that the cache held. Two of the processes are never killed: theirs is the
memory that must not grow.
"""

from __future__ import annotations

import argparse
import contextlib
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults import disk, record

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1 << 19
"""Bytes of the cache: a fraction of what the workers make."""
OLD = 2
"""Workers that are never killed themselves, only what they start."""
_SETTLED = 600.0
"""Seconds after which the memory of an old worker is what it has with everything loaded."""
_GONE = 300.0
"""Seconds in which what dead workers started has to end: it runs only where nobody else wants to."""

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
"""Of forty runs one fails, one lies, one is killed and one hangs; where there is no disk to fill, all fail at times."""


@dataclass
class Counts:
    """What has happened so far."""

    calls: int = 0
    wrong: int = 0
    stitched: int = 0
    """Times that a function was found to be stitched, among those in the default mode."""
    kills: int = 0
    kills_of_others: int = 0
    """Of planners, compilers and what else workers had started."""
    fills: int = 0
    """How often the disk was full."""
    died: list[str] = field(default_factory=list)
    memory: int = 0
    planner_memory: int = 0
    files: int = 0
    cache: int = 0
    old: dict[int, list[int]] = field(default_factory=dict)
    """Of each old worker, the memory once it has settled, and at last."""


@dataclass
class Place:
    """Where workers work: ``disk`` can be filled, ``root`` is for what they say."""

    root: Path
    disk: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def full(self) -> Path:
        return self.root / "full"

    def fill_or_empty(self) -> bool:
        """Fills the disk, or empties it if it is full. True where it is full now."""
        if self.full.exists():
            disk.empty(self.disk)
            self.full.unlink()
            return False
        if disk.folder_of_disk() is not None:
            disk.fill(self.disk)
        self.full.touch()
        return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life", type=float, default=240.0, help="seconds that a worker lives (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts there")
    wanted = parser.parse_args()
    folder = disk.folder_of_disk() or Path(tempfile.mkdtemp(prefix="soak-disk-"))
    disk.restarted_with_disk(folder)
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as root:
            place, rng = Place(Path(root), folder), random.Random(wanted.seed)
            counts = soak(place, wanted.minutes * 60, wanted.processes, wanted.life, rng)
            return report(place, counts, wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def soak(place: Place, seconds: float, count: int, life: float, rng: random.Random) -> Counts:
    """Runs the workers for so long."""
    from jax_stitch.backend.compile import toolchain

    (place.disk / "temporary").mkdir(mode=0o700)
    compiler = place.root / "c++"
    full = place.full if disk.folder_of_disk() is None else place.root / "never"
    compiler.write_text(COMPILER.format(real=shlex.join(toolchain.compiler()), full=full))
    compiler.chmod(0o755)
    counts, workers, started = Counts(), {}, 0
    end = place.started + seconds
    while time.monotonic() < end:
        while len(workers) < count:
            started += 1
            workers[started] = start(place, started, rng)
        time.sleep(0.5)
        if rng.random() < (0.2 if place.full.exists() else 0.02):  # full for some 3 s in half a minute
            counts.fills += place.fill_or_empty()
        look(place, workers, counts)
        if rng.random() < count / (2 * life):
            number = rng.choice([n for n in sorted(workers) if n > OLD])
            workers.pop(number).kill()
            counts.kills += 1
        if rng.random() < count / (2 * life):
            counts.kills_of_others += kill_another(place, {worker.pid for worker in workers.values()}, rng)
    for worker in workers.values():
        worker.kill()
    for worker in workers.values():
        worker.wait()
    return counts


def start(place: Place, number: int, rng: random.Random) -> subprocess.Popen[bytes]:
    """A worker, which writes to a file of its own."""
    settings = {
        **{"JAX_STITCH_CACHE_DIR": str(place.disk / "cache"), "JAX_STITCH_CACHE_MAX_SIZE": str(LIMIT)},
        **{"TMPDIR": str(place.disk / "temporary"), "CXX": str(place.root / "c++"), "JAX_STITCH_LOG": "off"},
        **{"JAX_STITCH_COMPILE_TIMEOUT": "10", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        **{"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "MARK": str(place.root)},
    }
    command = [sys.executable, "-m", "tests.faults.worker", str(rng.randrange(1 << 30))]
    with (place.root / f"{number}.jsonl").open("ab") as target, (place.root / f"{number}.err").open("wb") as errors:
        return subprocess.Popen(command, env=os.environ | settings, stdout=target, stderr=errors, cwd=ROOT)


def look(place: Place, workers: dict[int, subprocess.Popen[bytes]], counts: Counts) -> None:
    """Counts what workers have said, and which of them ended by themselves."""
    for number, process in list(workers.items()):
        if process.poll() is not None:
            counts.died.append(f"{process.returncode}: {(place.root / f'{number}.err').read_text()[-2000:]}")
            del workers[number]
    for output in place.root.glob("*.jsonl"):
        lines = output.read_bytes().split(b"\n")
        for line in lines[:-1]:
            if line.startswith(b"{"):
                note(counts, int(output.stem), json.loads(line), time.monotonic() - place.started)
        if lines[:-1]:  # What was counted goes; a line may be lost, which is none the less some calls.
            os.truncate(output, 0)
    cache = place.disk / "cache"
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        counts.cache = max(counts.cache, sum(p.stat().st_size for p in cache.rglob("*") if p.is_file()))
    for process in others(place, {worker.pid for worker in workers.values()}):
        with contextlib.suppress(OSError):
            pages = int((process / "statm").read_text().split()[1])
            counts.planner_memory = max(counts.planner_memory, pages * os.sysconf("SC_PAGE_SIZE"))


def note(counts: Counts, number: int, said: dict[str, int], elapsed: float) -> None:
    """Adds what one worker said."""
    counts.calls += said["calls"]
    counts.wrong += said["wrong"]
    counts.stitched += said["stitched"]
    counts.memory = max(counts.memory, said["memory"])
    counts.files = max(counts.files, said["files"])
    if number <= OLD:
        first = counts.old.setdefault(number, [said["memory"], said["memory"]])
        first[1] = said["memory"]
        if elapsed < _SETTLED:
            first[0] = said["memory"]


def kill_another(place: Place, workers: set[int], rng: random.Random) -> int:
    """Kills a planner, a compiler or whatever else there is just now; returns how many."""
    found = others(place, workers)
    if not found:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(rng.choice(found).name), signal.SIGKILL)
        return 1
    return 0


def others(place: Place, workers: set[int]) -> list[Path]:
    """The processes that workers have started, and that are there yet."""
    found = Path("/proc").glob("[0-9]*")
    return sorted(p for p in found if int(p.name) not in workers and is_of(p, place.root))


def is_of(process: Path, root: Path) -> bool:
    """Whether a process was started by a worker, or is one: it has the folder in its environment."""
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" and f"MARK={root}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def about(process: Path) -> str:
    """The state, parent, processor time and command of a process."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone since"
    return f"{fields[0]}, child of {fields[1]}, {fields[11]} + {fields[12]} ticks: {command[-300:]}"


def report(place: Place, counts: Counts, wanted: argparse.Namespace) -> int:
    """Prints the figures, and keeps them. What dead workers compiled in goes with the next process that compiles."""
    from jax_stitch.backend.compile import build_folder

    disk.empty(place.disk)
    end = time.monotonic() + _GONE
    while (orphans := others(place, set())) and time.monotonic() < end:
        time.sleep(0.5)
    waited = time.monotonic() - end + _GONE
    words = [about(orphan) for orphan in orphans]
    for orphan in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(orphan.name), signal.SIGKILL)
    build_folder.sweep(place.disk / "temporary")
    left = sorted(p.name for p in (place.disk / "temporary").iterdir())
    growth = ", ".join(f"from {first / 1e6:.0f} to {last / 1e6:.0f} MB" for first, last in counts.old.values())
    print(
        f"{counts.calls} calls, {counts.kills} workers killed and {counts.kills_of_others} of their processes, "
        f"{counts.fills} times a full disk, {counts.wrong} wrong results, {counts.stitched} functions found stitched, "
        f"{len(counts.died)} processes died by themselves, {len(orphans)} orphans, {len(left)} folders left; at most "
        f"{counts.memory / 1e6:.0f} MB and {counts.files} open files in a worker, {counts.planner_memory / 1e6:.0f} MB "
        f"in another process, {counts.cache / 1e6:.1f} MB in a cache of {LIMIT / 1e6:.1f} MB; old workers: {growth}"
    )
    for death in (*counts.died[:5], *left[:5], *words):
        print(death)
    figures = {
        **{"minutes": wanted.minutes, "processes": wanted.processes, "seed": wanted.seed},
        **{"disk": f"{disk.MEGABYTES} MB" if disk.folder_of_disk() else "none: compilers say that it is full"},
        **asdict(counts) | {"died": len(counts.died), "orphans": len(orphans), "left": len(left), "limit": LIMIT},
        "seconds until all was gone": round(waited, 1),
    }
    command = f"python -m tests.faults.soak --minutes {wanted.minutes:g} --seed {wanted.seed}"
    record.keep(wanted.json, "soak", command, figures)
    return bool(counts.wrong or counts.died or orphans or left)


if __name__ == "__main__":
    sys.exit(main())
