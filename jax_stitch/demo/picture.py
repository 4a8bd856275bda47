"""Programs before and after stitching as one picture: a block for each kernel, as wide as the bytes that it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from jax_stitch.util.formatting import format_bytes

if TYPE_CHECKING:
    from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic
    from jax_stitch.inspect.report.plan import Plan

WIDTH, LEFT, BLOCKS = 860, 84, 560
_LANE, _CASE = 26, 112
_PLAIN, _STITCHED, _LIBRARY, _INK = "#6b93d6", "#e8833a", "#a9afb8", "#24292f"
_LEAST = 3.0
"""Width of a block that can still be told from its neighbours."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A program of the picture."""

    title: str
    plan: Plan
    measured: str = ""
    """What was measured here, in a line; empty where nothing was."""


def picture(programs: Sequence[Shown], head: str) -> str:
    """Return an SVG of these programs under jax.jit and under stitch_jit, for the devices of their plans."""
    parts = [_text(10, 24, head, size=14, weight="600")]
    y = 40
    for shown in programs:
        parts.append(_program(shown, y))
        y += _CASE + (18 if shown.measured else 0)
    legend = (
        (_PLAIN, "XLA's kernels"),
        (_STITCHED, "stitched kernels"),
        (_LIBRARY, "products and other library calls"),
    )
    for n, (colour, label) in enumerate(legend):
        parts.append(f'<rect fill="{colour}" x="{LEFT + 170 * n}" y="{y}" width="12" height="12"/>')
        parts.append(_text(LEFT + 18 + 170 * n, y + 11, label, size=11))
    frame = f'<rect width="{WIDTH}" height="{y + 26}" rx="8" fill="#ffffff" stroke="#d0d7de"/>'
    size = f'width="{WIDTH}" height="{y + 26}" viewBox="0 0 {WIDTH} {y + 26}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{frame}{"".join(parts)}</svg>\n'


def _program(shown: Shown, y: int) -> str:
    plan = shown.plan
    longest = max(plan.xla_bytes, plan.bytes, plan.bound_bytes, 1)
    bound = LEFT + BLOCKS * plan.bound_bytes / longest
    line = f'x1="{bound:.1f}" x2="{bound:.1f}" y1="{y + 24}" y2="{y + 30 + 2 * _LANE + 6}"'
    parts = [_text(10, y + 16, shown.title, size=13, weight="600")]
    for row, (name, traffic) in enumerate((("jax.jit", plan.xla_traffic), ("stitched", plan.stitched_traffic))):
        top = y + 28 + row * (_LANE + 6)
        parts.append(_text(10, top + 18, name))
        parts.append(_lane(traffic, longest, top, stitched=row == 1))
        launches = f"{traffic.launches:,} launch{'es' if traffic.launches != 1 else ''}"
        parts.append(_text(LEFT + BLOCKS + 12, top + 18, f"{launches}, {format_bytes(traffic.bytes)}"))
    parts.append(f'<line {line} stroke="{_INK}" stroke-dasharray="4 3"/>')
    label = f"least possible: {format_bytes(plan.bound_bytes)}"
    anchor = "end" if bound > LEFT + 160 else "start"
    parts.append(_text(bound, y + 30 + 2 * _LANE + 18, label, size=11, anchor=anchor))
    if shown.measured:
        parts.append(_text(10, y + _CASE + 4, shown.measured))
    return "".join(parts)


def _lane(traffic: Traffic, longest: int, top: int, stitched: bool) -> str:
    """Return the kernels of a program one after the other; thin neighbours that are alike as one block."""
    parts, x, begun, last = [], float(LEFT), float(LEFT), ""
    for kernel in traffic.kernels:
        colour, width = _colour(kernel, stitched), BLOCKS * kernel.bytes / longest
        if last and (colour != last or x - begun >= _LEAST):
            parts.append(_block(begun, x, top, last))
            begun = x
        x, last = x + width, colour
        if kernel.launches > 1 and not kernel.library:
            parts.append(_block(begun, x, top, last))
            parts += _stripes(begun, x, top)
            begun, last = x, ""
    if last:
        parts.append(_block(begun, x, top, last))
    return "".join(parts)


def _block(x: float, end: float, top: int, colour: str) -> str:
    return f'<rect fill="{colour}" x="{x:.1f}" y="{top}" width="{max(end - x - 1, 0.6):.1f}" height="{_LANE}"/>'


def _stripes(x: float, end: float, top: int) -> list[str]:
    """Mark of a kernel that is launched again and again."""
    return [
        f'<rect fill="#ffffff" x="{x + n * 4 + 3:.1f}" y="{top}" width="1" height="{_LANE}"/>'
        for n in range(int((end - x) // 4))
    ]


def _colour(kernel: KernelTraffic, stitched: bool) -> str:
    if kernel.library:
        return _LIBRARY
    return _STITCHED if stitched and kernel.opcode == "custom-call" else _PLAIN


def _text(x: float, y: float, text: str, size: int = 12, weight: str = "400", anchor: str = "start") -> str:
    font = f'font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="{size}" font-weight="{weight}"'
    return f'<text fill="{_INK}" {font} x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
