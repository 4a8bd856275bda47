"""Result rows as text."""

from __future__ import annotations

from collections.abc import Sequence

from bench.rows import Row, Side
from jax_stitch.util.formatting import format_bytes, format_seconds
from jax_stitch.util.timing import geometric_mean


def line(row: Row) -> str:
    """One row as a line on the terminal."""
    if not row.reached:
        return f"{row.label}: NOT REACHED: {row.reason}"
    if row.status == "failed":
        return f"{row.label}: FAILED while {row.stage}: {row.reason}"
    parts = []
    if row.speedup is not None:
        parts.append(f"{seconds(row.jit)} jax.jit, {seconds(row.stitched)} stitched, {row.speedup:.2f}x")
    if row.device_speedup is not None and row.jit.device and row.stitched.device:
        parts.append(
            f"on the device {format_seconds(row.jit.device)} -> {format_seconds(row.stitched.device)}, "
            f"{row.device_speedup:.2f}x"
        )
    if row.jit.launches is not None and row.stitched.launches is not None:
        parts.append(f"{row.jit.launches:,} -> {row.stitched.launches:,} launches")
    parts += [f"{name} {format_seconds(time.median)}" for name, time in row.peers.items()]
    parts += {"wrong": [f"WRONG: {row.reason}"], "plain": ["NOT STITCHED"]}.get(row.status, [])
    return f"{row.label}: " + "; ".join([*parts, *row.notes])


def seconds(side: Side) -> str:
    """The median time, with its spread."""
    return "-" if side.time is None else f"{format_seconds(side.time.median)} ± {side.time.spread:.0%}"


def bytes_ratio(side: Side, row: Row) -> str:
    """Bytes over the least possible."""
    return "-" if side.bytes is None or not row.bound_bytes else f"{side.bytes / row.bound_bytes:.2f}"


def copy_share(side: Side, row: Row, bandwidth: float | None) -> float | None:
    """Bandwidth as a share of a copy's, counting each input and output once: what a perfect kernel has is about 1."""
    if side.time is None or not row.bound_bytes or not bandwidth:
        return None
    return row.bound_bytes / side.time.median / bandwidth


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns ``right`` are aligned there."""
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def share(value: float | None) -> str:
    """As a percentage."""
    return "-" if value is None else f"{value:.0%}"


def size_text(count: int | None) -> str:
    """Bytes."""
    return "-" if count is None else format_bytes(count)


def summary(rows: Sequence[Row]) -> str:
    """Geometric mean, best and worst speed-up, and how many rows are not as they should be."""
    timed = [(row.speedup, row) for row in rows if row.speedup is not None]
    parts = []
    if timed:
        best, worst = max(timed, key=lambda t: t[0]), min(timed, key=lambda t: t[0])
        mean = geometric_mean([speedup for speedup, _ in timed])
        parts.append(
            f"{len(timed)} workloads: geometric mean {mean:.2f}x, best {best[0]:.2f}x ({best[1].workload}), "
            f"worst {worst[0]:.2f}x ({worst[1].workload})"
        )
    device = [speedup for row in rows if (speedup := row.device_speedup) is not None]
    if device:
        parts.append(f"on the device {geometric_mean(device):.2f}x, worst {min(device):.2f}x")
    counted = [m for row in rows if (m := row.memory_launches) is not None and min(m) > 0]
    if counted:
        ratio = geometric_mean([stitched / xla for xla, stitched in counted])
        parts.append(f"memory-intensive launches {ratio:.2f} of XLA's in geometric mean")
    reached = [row for row in rows if row.reached]
    odd = {status: sum(row.status == status for row in reached) for status in ("wrong", "failed", "plain")}
    words = {"wrong": "wrong", "failed": "failed", "plain": "not stitched"}
    parts += [f"{count} {words[status]}" for status, count in odd.items() if count]
    parts += [f"{len(rows) - len(reached)} not reached"] * (len(reached) < len(rows))
    return "; ".join(parts) or "nothing was measured"
