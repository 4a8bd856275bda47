"""The table of kernels for a GPU, before and after."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bench.about import ROOT
from bench.tables import markdown

WORSE = 1.02
REASONS = ROOT / "bench" / "results" / "witness_reasons.toml"
UNEXPLAINED = "NO REASON GIVEN"
Row = Mapping[str, Any]
Measured = Mapping[tuple[str, str, int, int], Row]
"""By workload, kernel, blocks and threads: what an H200's counters said."""

HEAD = """\
Every workload's kernels for an H200 that is described: an earlier commit beside this one, each planned by its own
edition of the package, in a process of its own. Registers, spilled bytes and shared memory are NVRTC's; sectors of
32 bytes are counted in the checking mode, of a kernel whose blocks do not wait for each other from some blocks of each
of its parts. A kernel with one long loop, unless it was counted whole before, is run with the first 32 and with the
first 64 of the loop's steps, or, where all blocks go through each step together, with the first 2 and the first 4: each
step after those counts as one of those by which the two runs differ. Launches and bytes of whole programs are counted
on what XLA makes of them. A kernel's least time is that of its launch and the longer of its two terms, memory and
instructions, by each edition's own latency-evaluator, but with one rate of the memory and one time of a barrier: those
that an H200 was measured to have, which the earlier edition did not know. Its predicted times, which stand beside it,
were below their own terms at times. A workload's time has XLA's kernels beside ours too, from their bytes and launches,
but no calls of libraries. What an H200 itself took for the later edition's kernels, and the sectors that it read from
memory, caches empty, is from `gpu_kernels.json`, where it has a kernel of the same name, blocks and threads: those were
planned by another version of JAX.

**Bold** is worse by more than 2 %: more launches, sectors, spills or time; more registers or shared memory only where
fewer threads are on a multiprocessor for it. Kernels stand in one line where they read and write arrays of the same
types, else alone. Of a workload that is worse in a total, `witness_reasons.toml` says why.
"""


def reasons(device: str) -> dict[str, str]:
    """Why a workload is worse, by its name."""
    if not REASONS.exists():
        return {}
    return dict(tomllib.loads(REASONS.read_text(encoding="utf-8")).get(device, {}))


def total(side: Row, of: Callable[[Row], float | None]) -> float | None:
    """Over all launches of a side's stitched kernels; None where one of them is not known."""
    found = [(k["launches"], of(k)) for k in side["kernels"]]
    if any(value is None for _, value in found):
        return None
    return sum(n * value for n, value in found if value is not None)


def least(kernel: Row) -> float | None:
    """Seconds by which both editions are compared."""
    found = kernel.get("least_seconds", kernel["seconds"])
    return None if found is None else float(found)


def totals(side: Row) -> dict[str, float | None]:
    """What a workload takes in all."""
    program = side.get("stitched", {})
    own, others = total(side, least), program.get("others_seconds")
    counted, left = total(side, lambda k: k.get("sectors")), program.get("others_bytes")
    return {
        "launches": program.get("launches"),
        "sectors": None if counted is None or left is None else counted + left / 32,
        "bytes": program.get("bytes"),
        "us": None if own is None or others is None else 1e6 * (own + others),
        "spills": sum(k["spill_bytes"] for k in side["kernels"]),
    }


def is_worse(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after > before * WORSE + 1e-12


def cell(before: float | None, after: float | None, *, worse: bool | None = None) -> str:
    """Both figures, marked where the second is worse; one where they are the same."""
    texts = ["-" if v is None else f"{v:,.0f}" if v == round(v) or v > 1000 else f"{v:.3g}" for v in (before, after)]
    marked = is_worse(before, after) if worse is None else worse
    if texts[0] == texts[1]:
        return texts[0]
    return f"{texts[0]} → {f'**{texts[1]}**' if marked else texts[1]}"


def pairs(before: Row, after: Row) -> list[tuple[Row | None, Row | None]]:
    """Kernels that read and write the same, then those that write the same, then the rest, each alone."""
    old, new = list(before["kernels"]), list(after["kernels"])
    found: list[tuple[Row | None, Row | None]] = []

    def exact(k: Row) -> object:
        return sorted(Counter(k["reads"]).items()), sorted(Counter(k["writes"]).items())

    def written(k: Row) -> object:
        return sorted(Counter(k["writes"]).items())

    for same in (exact, written):
        for k in list(old):
            likely = [n for n in new if same(n) == same(k)]
            if likely:
                mate = min(likely, key=lambda n: (n["launches"] != k["launches"], n["name"] != k["name"]))
                old.remove(k)
                new.remove(mate)
                found.append((k, mate))
    return [*found, *((k, None) for k in old), *((None, k) for k in new)]


def kernel_line(before: Row | None, after: Row | None, seen: Row | None = None) -> list[str]:
    names = [k["name"] for k in (before, after) if k is not None]
    one = before is None or after is None
    shares = [k["occupancy"] for k in (before, after) if k is not None]
    held = not one and shares[1] < shares[0] / WORSE

    def both(key: str, scale: float = 1.0, held_by: bool | None = None) -> str:
        values = [None if k is None or k.get(key) is None else k[key] * scale for k in (before, after)]
        worse = False if one else None if held_by is None else held_by and is_worse(*values)
        return cell(values[0], values[1], worse=worse)

    return [
        " / ".join(dict.fromkeys(name[:44] for name in names)) + (" (alone)" if one else ""),
        both("launches"),
        _code(before, after),
        both("registers", held_by=held),
        both("spill_bytes"),
        both("shared_bytes", held_by=held),
        both("occupancy", 100.0, held_by=False),
        both("sectors"),
        both("least_seconds", 1e6),
        both("seconds", 1e6, held_by=False),
        *(("-", "-") if seen is None else (f"{seen['nanoseconds'] / 1e3:,.3g}", f"{seen['memory_read']:,.0f}")),
    ]


def _code(before: Row | None, after: Row | None) -> str:
    """How many instructions of PTX a kernel has, and whether they are the same."""
    if before is not None and after is not None and before["code"] == after["code"]:
        return "the same"
    counts = [None if k is None else k["instructions"] for k in (before, after)]
    return cell(counts[0], counts[1], worse=False)


def measured(rows: Sequence[Row]) -> Measured:
    """The rows of ``gpu_kernels.json`` by what they are of."""
    return {(k["workload"], k["name"], k["grid"], k["block"]): k for k in rows}


def text(rows: Sequence[Row], seen: Measured = MappingProxyType({})) -> str:
    """All of it: totals of workloads, then kernels."""
    told, lines, parts, worse_ones, missing = reasons("h200"), [], [], 0, []
    for row in rows:
        name = row["workload"]
        if "before" not in row or "after" not in row:
            continue
        before, after = row["before"], row["after"]
        old, new = totals(before), totals(after)
        worse = [key for key in old if is_worse(old[key], new[key])]
        worse_ones += bool(worse)
        failed = [side["plan failed"] for side in (before, after) if "plan failed" in side]
        missing += [f"{name} ({'; '.join(failed)})"] * bool(failed)
        why = told.get(name, UNEXPLAINED) if worse else told.get(name, "")
        counts = [len(side["kernels"]) for side in (before, after)]
        lines.append([name, cell(counts[0], counts[1], worse=False), *(cell(old[k], new[k]) for k in old), why])
        parts += [
            "",
            f"### {name} [{' x '.join(map(str, row['size']))}]",
            "",
            markdown(KERNEL, _kernels(name, before, after, seen)),
        ]
    sides = " and ".join(
        sorted({f"{s} {row[s].get('commit', '?')}" for row in rows for s in ("before", "after") if s in row})
    )
    said = f"{len(lines)} workloads ({sides}); {worse_ones} of them are worse in some total."
    left = [f"Not planned in time: {', '.join(missing)}."] if missing else []
    return "\n".join([HEAD, said, *left, "", markdown(TOTALS, lines, right=range(1, 7)), *parts, ""])


TOTALS = ["workload", "kernels", "launches", "sectors", "bytes", "least us", "spilled bytes", "why it is worse"]
KERNEL = [
    *("kernel", "launches", "PTX instructions", "registers", "spilled bytes", "shared bytes", "threads %"),
    *("sectors", "least us", "predicted us", "H200: us", "sectors read"),
]


def _kernels(workload: str, before: Row, after: Row, seen: Measured) -> list[list[str]]:
    def counted(kernel: Row | None) -> Row | None:
        if kernel is None or "grid" not in kernel:
            return None
        return seen.get((workload, kernel["name"], kernel["grid"], kernel["block"]))

    return [kernel_line(old, new, counted(new)) for old, new in pairs(before, after)]
