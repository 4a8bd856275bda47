"""All runs of the generator in one file, and what they add up to: `python -m tests.fuzz.record [FILE]` prints it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.settings import apply

RECORD = Path(__file__).resolve().parents[2] / "bench" / "results" / "fuzz.json"

ADDED = ("kinds", "undecided", "operations", "parts", "opcodes", "ways", "kernels", "judged", "primitives", "fallbacks")
"""What is added up over runs."""

ABOUT = ("seed", "first", "each", "commit", "programs", "seconds", "kinds", "undecided", "failures")
"""What is kept of a run."""


def empty() -> dict[str, Any]:
    return {"command": "python -m tests.fuzz --seed SEED --record FILE", "runs": [], "programs": 0, "totals": {}}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else empty()


def added(base: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A record with one run more, as ``report.data`` has it."""
    found = {**run["counts"], "kinds": run["kinds"], "undecided": run["undecided"]}
    totals = {name: Counter(base["totals"].get(name, {})) for name in ADDED}
    for name in ADDED:
        totals[name].update(found.get(name, {}))
    row = {name: run[name] for name in ABOUT if name in run}
    row["failures"] = [{k: f[k] for k in ("title", "count", "numbers")} for f in run["failures"]]
    return {
        **base,
        "runs": [*base["runs"], row],
        "programs": base["programs"] + run["programs"],
        "totals": {name: dict(counter.most_common()) for name, counter in totals.items()},
    }


def write(path: Path, record: Mapping[str, Any]) -> None:
    """At once or not at all: a run that is killed leaves what it wrote last."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(record, indent=1) + "\n")
    new.replace(path)


def unreached(operations: Mapping[str, int]) -> list[str]:
    from tests.fuzz.surface import surface

    return [n for n in surface() if not operations.get(n)]


def text(record: Mapping[str, Any]) -> str:
    """What all runs add up to."""
    totals = record["totals"]

    def line(name: str) -> str:
        found = Counter(totals.get(name, {}))
        return ", ".join(f"{k} {n}" for k, n in found.most_common()) or "none"

    missing = unreached(totals.get("operations", {}))
    of_lax = [n for n in missing if n.startswith("lax.")]
    lines = [f"{record['programs']} programs in {len(record['runs'])} runs: {line('kinds')}"]
    for run in record["runs"]:
        kinds = ", ".join(f"{k} {n}" for k, n in run["kinds"].items())
        lines.append(f"  seed {run['seed']}, commit {run['commit']}: {run['programs']} programs, {kinds}")
        lines += [f"    {f['count']} x {f['title']}" for f in run["failures"]]
    lines += [
        f"ways: {line('ways')}",
        f"kernels: {line('kernels')}",
        f"judged: {line('judged')}",
        f"undecided: {line('undecided')}",
        f"kinds of kernel parts: {line('parts')}",
        f"opcodes stitched: {line('opcodes')}",
        f"operations: {line('operations')}",
        f"never reached: {len(missing)} operations, of jax.lax: {', '.join(of_lax) or 'none'}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    print(text(read(Path(arguments[0]) if arguments else RECORD)))
    return 0


if __name__ == "__main__":
    apply("tests.fuzz.record")
    sys.exit(main(sys.argv[1:]))
