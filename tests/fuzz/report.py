"""What a run of the generator found, as text and as data."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.program import to_json
from tests.fuzz.run import Failure, Summary
from tests.fuzz.surface import surface

_ROOT = f"{Path(__file__).resolve().parents[2]}/"


def without_paths(text: str) -> str:
    """A traceback that says nothing of the machine."""
    return re.sub(r'"/[^"]*?/(site-packages|lib/python[\d.]+)/', '"', text.replace(_ROOT, ""))


def failure(f: Failure) -> str:
    """A failure as a script that shows it."""
    o = f.outcome
    way = f"{o.way.name}, seed {o.way.seed}" if o.way else "no way"
    head = [f"# {o.kind} by way of {way}: {o.signature}", f"# program {o.task.seed}:{o.task.number}"]
    detail = [f"# {line}" for line in o.detail.splitlines()[-14:]]
    return "\n".join([*head, *detail, f.reduced.script(o.way.script() if o.way else ())])


def text(summary: Summary) -> str:
    s = summary
    speed = 60 * s.programs / s.seconds if s.seconds else 0.0
    lines = [
        f"{s.programs} programs in {s.seconds:.0f} s ({speed:.0f} a minute): {_line(s.kinds)}",
        f"seconds: {', '.join(f'{k} {v:.0f}' for k, v in s.counts.get('seconds', Counter()).items())}",
        f"undecided: {_line(s.undecided)}",
        f"ways: {_line(s.counts.get('ways', Counter()))}",
        f"kernels: {_line(s.counts.get('kernels', Counter()))}",
        f"judged: {_line(s.counts.get('judged', Counter()))}",
        f"kinds of kernel parts: {_line(s.counts.get('parts', Counter()))}",
        f"opcodes stitched: {_line(s.counts.get('opcodes', Counter()))}",
        f"ran as plain jax.jit: {_line(s.counts.get('fallbacks', Counter()))}",
        f"primitives: {_line(s.counts.get('primitives', Counter()))}",
        f"operations: {_line(s.counts.get('operations', Counter()))}",
        f"never reached: {_unreached(s)}",
        f"{len(s.failures)} kinds of failure:",
    ]
    for name, example in s.examples.items():
        if name.startswith("judge"):
            lines.append(f"undecided {example.task.seed}:{example.task.number}: {name}\n{example.detail[-1200:]}")
    ordered = sorted(
        s.failures.values(), key=lambda f: (["wrong", "crash", "error", "hang"].index(f.outcome.kind), -f.count)
    )
    lines += [f"  {f.count} x {f.title} (programs {', '.join(map(str, f.numbers[:8]))})" for f in ordered]
    return "\n".join(lines)


def _unreached(summary: Summary) -> str:
    missing = [n for n in surface() if n not in summary.counts.get("operations", Counter())]
    of_lax = [n for n in missing if n.startswith("lax.")]
    return f"{len(missing)} of {len(surface())} operations, of jax.lax: {', '.join(of_lax) or 'none'}"


def _line(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


def data(summary: Summary, seed: int, commit: str, *, first: int = 0, each: bool = False) -> dict[str, Any]:
    s = summary
    return {
        "seed": seed,
        "first": first,
        "each": each,
        "commit": commit,
        "programs": s.programs,
        "seconds": s.seconds,
        "kinds": dict(s.kinds),
        "undecided": dict(s.undecided),
        "never reached": [n for n in surface() if n not in s.counts.get("operations", Counter())],
        "counts": {name: dict(found) for name, found in s.counts.items()},
        "failures": [
            {
                "title": f.title,
                "count": f.count,
                "numbers": f.numbers,
                "program": to_json(f.reduced),
                "way": [f.outcome.way.name, f.outcome.way.seed] if f.outcome.way else None,
                "detail": without_paths(f.outcome.detail),
            }
            for f in s.failures.values()
        ],
    }
