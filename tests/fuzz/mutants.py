"""Faults planted on purpose, and how many programs it takes to find each: `python -m tests.fuzz.mutants [NAME...]`.

A mutant is a replacement in the text of one of our modules or headers. A process that imports the changed text runs
programs until one fails; that one is run again with the true text, and counts if it passes there. With `--verify` the
programs that found them, as the record has them, run once more under the fault with ``verify=True``. With `--reached`
the programs are those of a campaign, less those that do not come to the changed text (``probes.py``).
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "jax_stitch"
RECORD = ROOT / "bench" / "results" / "mutants.json"
MOST = 2000
"""Programs within which each is to be found."""


@dataclass(frozen=True)
class Mutant:
    """``old`` is written as ``new`` in a file of the package; ``way`` is the only one that can see it, if any. Of a
    header, ``called`` is in the text of each kernel that can come to the changed line."""

    file: str
    old: str
    new: str
    way: str = ""
    called: str = ""


MUTANTS: Mapping[str, Mutant] = {
    # What reads what (planner)
    "a slice's start": Mutant("analysis/maps.py", "i * step + start for i,", "i * step for i,"),
    "padding between elements": Mutant(
        "analysis/maps.py", "Guard(i - low, 0, (size - 1) * step, step)", "Guard(i - low, 0, (size - 1) * step)"
    ),
    "the clamp of a dynamic slice": Mutant("analysis/maps.py", "(1 + d, ()), dims[d] - size)", "(1 + d, ()), dims[d])"),
    "the clamp of a gather": Mutant("analysis/maps.py", "size - shape.slice_sizes[d])", "size - 1)"),
    "a comparison known too early": Mutant(
        "analysis/maps.py", "True if gap.high < 0 else", "True if gap.high <= 0 else"
    ),
    "a loop's last count": Mutant("loops/nest.py", 'a["by"] * a["trips"])', 'a["by"] * (a["trips"] - 1))'),
    "a neutral value": Mutant(
        "graph/combiners.py",
        'kind != "complex":\n            return _limits(dtype)[0]',
        'kind != "complex":\n            return 0',
    ),
    # How it is laid out (scheduler)
    "the last rows": Mutant(
        "schedule/split.py",
        "groups = rows // period * ceil(period / rows_per_block)",
        "groups = max(1, rows // rows_per_block)",
    ),
    "the last rows of a loop": Mutant(
        "schedule/split.py",
        "Order.ROWS, 1, ceil(rows / rows_per_block))",
        "Order.ROWS, 1, max(1, rows // rows_per_block))",
    ),
    "room for a reduction that keeps places": Mutant(
        "schedule/storage.py",
        "offset += s.arrays_beside * block_bytes(s, split)",
        "offset += 0 * block_bytes(s, split)",
    ),
    "room for lanes' results": Mutant(
        "schedule/storage.py", "scratch = max(scratch, 32 * width)", "scratch = max(scratch, 8)", "checked"
    ),
    "the direction of a scan": Mutant("schedule/row_passes.py", "backward=True in way", "backward=False"),
    # What is written (emitter and runtime)
    "a barrier": Mutant("emit/sorts.py", "return [keyed, Barrier(), ordered", "return [keyed, ordered"),
    "a stale carry": Mutant("emit/loop.py", "if value in own:", "if value in ():"),
    "less or equal": Mutant("emit/cpp/scalar.py", '"LE": "<="', '"LE": "<"'),
    "a shift by the width": Mutant(
        "backend/runtime/scalar_integer.h",
        "return n < width<T> ? T(modular<T>(a) <<",
        "return n <= width<T> ? T(modular<T>(a) <<",
        called="shift_left(",
    ),
    "the maximum of NaN": Mutant(
        "backend/runtime/scalar_float.h", "return a != a ? a : most;", "return most;", called="maximum("
    ),
    # The host's own sort keeps equal keys in order.
    "a stable sort": Mutant("emit/cpp/part.py", "if order.stable:", "if False:", "checked"),
    "what a scan carries": Mutant(
        "backend/runtime/scan.h", "before = values[end - 1];", "before = values[length - 1];", called="SCAN"
    ),
    "a reduction's initial value": Mutant(
        "emit/part.py", "return None if value == r.identity else value", "return None"
    ),
}


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module with its text changed."""

    def __init__(self, name: str, path: str, old: str, new: str):
        super().__init__(name, path)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        assert self._old in text, f"{self._old!r} is not in {self.path}"
        return compile(text.replace(self._old, self._new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, path: Path, old: str, new: str):
        self._module, self._path, self._old, self._new = module, path, old, new

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        loader = _Changed(name, str(self._path), self._old, self._new)
        return importlib.machinery.ModuleSpec(name, loader, origin=str(self._path))


def plant(mutant: Mutant) -> None:
    """Before anything of the package is imported."""
    if mutant.file.endswith(".h"):
        folder = Path(tempfile.mkdtemp(prefix="fuzz-runtime-")) / "runtime"
        subprocess.run(["cp", "-r", str(PACKAGE / "backend" / "runtime"), str(folder)], check=True)
        header = folder / Path(mutant.file).name
        text = header.read_text()
        assert mutant.old in text, f"{mutant.old!r} is not in {mutant.file}"
        header.write_text(text.replace(mutant.old, mutant.new))
        line = 'RUNTIME = Path(__file__).resolve().parent.parent / "runtime"'
        mutant = Mutant("backend/compile/headers.py", line, f"RUNTIME = Path({str(folder)!r})")
    module = "jax_stitch." + mutant.file.removesuffix(".py").replace("/", ".")
    sys.meta_path.insert(0, _Finder(module, PACKAGE / mutant.file, mutant.old, mutant.new))


def hunt(name: str, programs: Sequence[tuple[int, int]], jobs: int, only: str) -> None:
    """Runs programs, given by seeds and numbers, with the fault, and prints a line for each."""
    mutant = MUTANTS[name]
    plant(mutant)
    from tests.fuzz import command, run
    from tests.fuzz.child import Task

    command.preload()
    allowed = tuple(filter(None, [only or mutant.way]))
    tasks = (Task(seed, n, allowed=allowed, limit=30.0) for seed, n in programs)
    for outcome in run.outcomes(tasks, jobs, time.monotonic() + 24 * 3600):
        way = [outcome.way.name, outcome.way.seed] if outcome.way else None
        program = outcome.task.seed, outcome.task.number
        found = {"program": program, "failed": outcome.failed and outcome.kind != "hang", "way": way}
        print(json.dumps({**found, "kind": outcome.kind, "signature": outcome.signature}), flush=True)


def hunted(name: str, programs: Sequence[tuple[int, int]], jobs: int, only: str) -> Iterator[dict[str, object]]:
    """What a process of its own says of each program."""
    command = [sys.executable, "-m", "tests.fuzz.mutants", "--hunt", name, "--jobs", str(jobs), "--way", only]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=dict(os.environ)) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(programs))
            process.stdin.close()
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        finally:
            process.terminate()


@dataclass(frozen=True)
class Found:
    """A fault that a program showed: after how many programs of a sequence, of which so many were run with it (the
    others do not come to its text); ``how`` says where and how it showed. No programs: it was not found."""

    programs: int
    ran: int
    how: str
    program: Mapping[str, object] = field(default_factory=dict)
    """Its number, the way it was run in, and its text."""


def found_after(
    name: str, programs: Sequence[tuple[int, int]], tried: Sequence[tuple[int, int]], jobs: int, only: str = ""
) -> Found:
    """The first of the ``tried`` programs, a part of ``programs``, that shows a fault."""
    from tests.fuzz import child, ways
    from tests.fuzz.program import Program, to_json

    ran = 0
    for said in hunted(name, tried, jobs, only):
        ran += 1
        if not said["failed"] or not isinstance(said["way"], list) or not isinstance(said["program"], list):
            continue
        (seed, number), (way, of_way) = said["program"], said["way"]
        true = child.run(child.Task(seed, number, ways=(ways.Way(way, of_way),)))
        if true.kind == "pass" and isinstance(true.program, Program):
            program = {"number": f"{seed}:{number}", "way": [way, of_way], "program": to_json(true.program)}
            how = f"{seed}:{number}, {way}: {said['kind']} {said['signature']}"
            return Found(max(programs.index((seed, number)) + 1, ran), ran, how, program)
    return Found(0, ran, f"not in {len(programs)} programs, of which {ran} were run")


def second_opinion(name: str, found: Mapping[str, object]) -> dict[str, str]:
    """What ``verify=True`` says under a fault, of the program that found it, as the record has it."""
    with tempfile.TemporaryDirectory() as folder:  # No verdict of an earlier process is kept there.
        environment = {**os.environ, "JAX_STITCH_CACHE_DIR": folder}
        command = [sys.executable, "-m", "tests.fuzz.mutants", "--opinion", name, json.dumps(found)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    said = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return json.loads(said[-1]) if said else {"verdict": "crash", "detail": run.stderr[-1000:]}


def opinion(name: str, found: str) -> None:
    """The same, in a process of its own: plants the fault and prints."""
    plant(MUTANTS[name])
    import jax

    from tests.fuzz import second_opinion, ways
    from tests.fuzz.program import from_json

    known = json.loads(found)
    program = from_json(known["program"])
    jax.config.update("jax_enable_x64", program.x64)
    verdict, detail = second_opinion.opinion(program, ways.Way(*known["way"]))
    print(json.dumps({"verdict": verdict, "detail": detail[:600]}), flush=True)


def verify(names: Sequence[str], path: Path) -> int:
    """Asks for a second opinion on each fault that the record says was found, and keeps what it is."""
    from bench.files import write_json

    known = json.loads(path.read_text())
    missed = 0
    for title, row in known.items():
        if not row["programs"] or (names and title.rpartition(" (")[0] not in names):
            continue
        row["verify"] = second_opinion(title.rpartition(" (")[0], row["found"])
        missed += row["verify"]["verdict"] == "missed"
        print(f"{title}: {row['verify']['verdict']} {row['verify']['detail'][:160]}", flush=True)
        write_json(path, known)
    return int(missed > 0)


def sequence(name: str, options: argparse.Namespace) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The programs to find a fault in, and those of them that are run: where a campaign has seen it, those that come to
    its text."""
    from tests.fuzz import probes

    if options.reached is None:
        programs = [(options.seed, n) for n in range(options.count)]
        return programs, programs
    programs = probes.programs(options.reached)[: options.count]
    worth = set(probes.worth_planting(name, options.reached))
    return programs, [p for p in programs if p in worth]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=MOST)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--reached", type=Path, metavar="FILE", help="programs of a campaign, as it kept them there")
    parser.add_argument("--way", default="", help='only this way, such as "verified"')
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what is found there, beside what it holds")
    parser.add_argument("--hunt", metavar="NAME", help="run programs with this fault (for the script's own use)")
    parser.add_argument("--verify", action="store_true", help="a second opinion on what the record says was found")
    parser.add_argument("--opinion", nargs=2, metavar=("NAME", "FOUND"), help="the same (for the script's own use)")
    options = parser.parse_args(arguments)
    if options.opinion:
        opinion(*options.opinion)
        return 0
    if options.verify:
        return verify(options.names, options.json or RECORD)
    if options.hunt:
        hunt(options.hunt, [tuple(p) for p in json.load(sys.stdin)], options.jobs, options.way)
        return 0
    return search(options)


def search(options: argparse.Namespace) -> int:
    """Looks for each fault in turn, tells of it, and keeps what is found where asked."""
    from bench.about import commit
    from bench.files import write_json
    from tests.fuzz.command import preload

    preload()
    missed = 0
    for name in options.names or MUTANTS:
        began = time.monotonic()
        programs, tried = sequence(name, options)
        found = found_after(name, programs, tried, options.jobs, options.way)
        missed += not found.programs
        after = f"after {found.programs} programs, {found.ran} run" if found.programs else "NOT FOUND"
        print(f"{name}: {after} ({time.monotonic() - began:.0f} s): {found.how}", flush=True)
        if options.json is not None:
            of_way = options.way or MUTANTS[name].way or "all"
            row = {
                "commit": commit(),
                "ways": of_way,
                "programs": found.programs,
                "ran": found.ran,
                "found": found.program,
                "how": found.how,
            }
            known = json.loads(options.json.read_text()) if options.json.exists() else {}
            write_json(options.json, known | {f"{name} ({of_way})": row})
    return int(missed > 0)


if __name__ == "__main__":
    from tests.fuzz.settings import apply

    apply("tests.fuzz.mutants")
    sys.exit(main(sys.argv[1:]))
