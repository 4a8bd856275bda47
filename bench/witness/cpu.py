"""The table of times on this CPU, old and new in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.tables import markdown
from bench.witness.table import UNEXPLAINED, WORSE, reasons
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean


def line(found: Mapping[str, Any]) -> str:
    """A workload's times as a line on the terminal."""
    if "failed" in found:
        return f"FAILED: {found['failed']}"
    return f"{format_seconds(found['before'])} before, {format_seconds(found['after'])} after: {found['ratio']:.3f}"


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table, with what is slower by more than 2 % marked, and why it is."""
    told = reasons("cpu")
    lines, ratios, worse = [], [], 0
    for row in rows:
        found, name = row["times"], row["workload"]
        if "failed" in found:
            lines.append([name, "-", "-", "-", "-", found["failed"]])
            continue
        ratios.append(found["ratio"])
        # Slower in three rounds of four, and by more than the limit in the middle one.
        is_worse = found["ratio"] > WORSE and found["least"] > 1
        worse += is_worse
        lines.append(
            [
                f"{name} [{' x '.join(map(str, row['size']))}]",
                *(format_seconds(found[kind]) for kind in ("plain", "before", "after")),
                f"{found['ratio']:.3f} ({found['least']:.3f} to {found['most']:.3f})",
                told.get(name, UNEXPLAINED) if is_worse else told.get(name, ""),
            ]
        )
    mean = f"{geometric_mean(ratios):.3f} in geometric mean" if ratios else "nothing was timed"
    header = ["workload", "jax.jit", "before", "after", "after / before (half of the rounds)", "why it is slower"]
    head = (
        "Times of a call of the stitched function on a CPU: an earlier commit and this one, each in a process of its "
        "own, in turn in every round. glibc is told to keep what a call frees: else it is chance in each process "
        "whether a call's results are pages that are touched for the first time. "
        f"{len(ratios)} workloads, {mean}; {worse} slower by more than 2 %."
    )
    return "\n".join([head, "", markdown(header, lines, right=range(1, 5)), ""])
