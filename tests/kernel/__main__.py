"""``python -m tests.kernel --patterns 5000 --seed S``: random patterns by XLA, the graph, the interpreter and C++."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bench.files import write_json
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.backend.compile import Kernel
from jax_stitch.frontend.replay import StitchedGraph, replay, unsupported
from jax_stitch.pipeline import Stitched
from tests.drawn import differences
from tests.kernel.agreement import interpreted
from tests.kernel.drawn_kernels import Drawn, drawn, kind, traits
from tests.kernel.together import compiled

BATCH = 24
"""Programs whose kernels are one C++ text."""
LIGHT = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""XLA's program is what ours is compared with, once."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Record:
    """What was compared so far, of the seeds from ``first`` to before ``next``."""

    first: int
    next: int
    seconds: float = 0.0
    programs: int = 0
    patterns: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    traits: dict[str, int] = field(default_factory=dict)
    """What patterns and kernels are besides; some are several."""
    devices: dict[str, int] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    """At which parts of it ran."""

    def __str__(self) -> str:
        wrong = len(self.disagreements)
        return f"seeds {self.first} to {self.next - 1}: {self.patterns} patterns, {wrong} programs disagree"

    def add(self, one: Drawn) -> None:
        parts = [p for k in one.kernels.kernels for p in k.scheduled.parts]
        self.patterns += len(parts)
        for counts, names in (
            ("kinds", map(kind, parts)),
            ("traits", traits(one.kernels)),
            ("devices", [one.device.name] * len(parts)),
        ):
            setattr(self, counts, dict(sorted((Counter(getattr(self, counts)) + Counter(names)).items())))


def wrong(one: Drawn, kernels: Sequence[Kernel]) -> list[str]:
    """Where a program's results differ between XLA, the graph, the interpreter and C++. Needs x64."""
    made, stitched = one.program, one.kernels
    args = [jnp.asarray(a) for a in made.args]
    graph = _graph_of(stitched)
    wanted = _light(lambda *a: made.fun(*a), args)
    runs: dict[str, Any] = {
        "the graph": _light(lambda *a: graph(a), args),
        "the interpreter": interpreted(stitched, made.args),
        "C++ on the host": _light(lambda *a: stitched.function(kernels)(a), args),
    }
    found = []
    for name, results in runs.items():
        lines = differences(made, results, wanted)
        if lines and differences(made, results, made.fun(*made.args)):  # Else XLA is wrong.
            found += [f"seed {one.seed}, {one.device.name}, {name}: {line}" for line in lines]
    return found


def _graph_of(made: Stitched) -> Callable[[Sequence[Any]], list[Any]]:
    """The planned graph by itself; where it has operations that only kernels have, as it was captured."""
    whole = made.plan.graph
    if unsupported(whole):
        return replay(StitchedGraph(made.captured_graph, (), {}), made.capture.callbacks)
    return replay(StitchedGraph(whole, (), _children(made.plan)), made.capture.callbacks)


def _children(plan: FusionPlan) -> dict[tuple[int, str], StitchedGraph]:
    return {key: StitchedGraph(child.graph, (), _children(child)) for key, child in plan.children.items()}


def _light(function: Any, args: Sequence[Any]) -> Any:
    return jax.jit(function).lower(*args).compile(LIGHT)(*args)


def disagreements(seeds: Sequence[int], record: Record) -> list[str]:
    """Where the programs of seeds disagree, each with its text; all are counted in the record."""
    with jax.enable_x64(True):
        found, programs = [], []
        for seed in seeds:
            try:
                programs.append(drawn(seed))
            except Exception as failure:
                found.append(f"seed {seed}: {type(failure).__name__}: {failure}")
        try:
            kernels = compiled([one.kernels for one in programs])
        except Exception:
            if len(seeds) == 1:
                raise
            return [line for seed in seeds for line in _alone(seed, record)]
        for one, of_one in zip(programs, kernels, strict=True):
            try:
                lines = wrong(one, of_one)
            except Exception as failure:
                lines = [f"seed {one.seed}: {type(failure).__name__}: {failure}"]
            found += ["\n".join([*lines, repr(one.program)])] if lines else []
            record.add(one)
        record.programs += len(seeds)
    return found


def _alone(seed: int, record: Record) -> list[str]:
    try:
        return disagreements([seed], record)
    except Exception as failure:
        return [f"seed {seed}: {type(failure).__name__}: {failure}"]


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _begun(path: Path | None, seed: int) -> Record:
    if path is None or not path.exists():
        return Record(seed, seed)
    return Record(**json.loads(path.read_text())["record"])


def main() -> int:
    """Whether any disagree."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel", description=__doc__)
    parser.add_argument("--patterns", type=int, default=5000, help="until so many were compared")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the record in FILE, and go on from it")
    options = parser.parse_args()
    record = _begun(options.json, options.seed)
    commit = _commit()
    if commit not in record.commits:
        record.commits.append(commit)
    while record.patterns < options.patterns:
        start = time.monotonic()
        found = disagreements(range(record.next, record.next + BATCH), record)
        record.next += BATCH
        record.seconds = round(record.seconds + time.monotonic() - start, 1)
        record.disagreements += found
        if found:
            print("\n".join(found), flush=True)
        jax.clear_caches()
        print(
            f"{record.next}: {record.patterns}, {len(record.disagreements)} disagree, {record.seconds:.0f} s",
            flush=True,
        )
        if options.json is not None:
            write_json(options.json, {"command": "python -m tests.kernel", "record": asdict(record)})
    for counts in (record.kinds, record.traits):
        print(json.dumps(counts, indent=1))
    print(
        f"seeds {record.first} to {record.next - 1}: {record.patterns} patterns, {len(record.disagreements)} disagree"
    )
    return min(1, len(record.disagreements))


if __name__ == "__main__":
    # Tests have it set before JAX is imported; here nothing is compiled for whoever waits.
    os.environ.setdefault("JAX_STITCH_LOG", "off")
    sys.exit(main())
