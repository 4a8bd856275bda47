"""Both programs' traffic as bars of the same scale, in SVG."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from jax_stitch.util.formatting import format_bytes

if TYPE_CHECKING:
    from jax_stitch.frontend.capture.traffic import KernelTraffic, Traffic
    from jax_stitch.inspect.report.plan import Plan

COLOURS = {"xla": "#5b8def", "stitched": "#e8833a", "library": "#9aa0a6"}
FONT = 'fill="currentColor" font-family="system-ui, sans-serif" font-size="12"'
MOST = 250
"""Rectangles of a program; what is thinner goes into one."""


def traffic_picture(plan: Plan) -> str:
    """Return both programs as bars of the same scale, a rectangle for each kernel as wide as its bytes.

    The bound is a line across them.
    """
    programs: tuple[tuple[str, Traffic], ...] = (("jax.jit", plan.xla_traffic), ("stitched", plan.stitched_traffic))
    width, left, height = 860, 70, 34
    longest = max(*(t.bytes for _, t in programs), plan.bound_bytes, 1)
    parts: list[str] = []
    for row, (label, traffic) in enumerate(programs):
        y = 24 + row * (height + 14)
        parts.append(f'<text {FONT} x="0" y="{y + 21}">{label}</text>')
        x = float(left)
        for kernel in _thickest(traffic):
            w = width * kernel.bytes / longest
            about = f"{kernel.name} ({kernel.opcode}): {kernel.launches:,} launches, {format_bytes(kernel.bytes)}"
            parts.append(
                f'<rect fill="{COLOURS[_kind(kernel, stitched=row == 1)]}" x="{x:.1f}" y="{y}" width="{max(w, 1):.1f}" '
                f'height="{height}"><title>{escape(about)}</title></rect>'
            )
            x += w
    bound = left + width * plan.bound_bytes / longest
    bottom = 24 + 2 * (height + 14)
    parts.append(
        f'<line x1="{bound:.1f}" y1="14" x2="{bound:.1f}" y2="{bottom}" stroke="currentColor" stroke-dasharray="4"/>'
    )
    parts.append(f'<text {FONT} x="{bound - 4:.1f}" y="12" text-anchor="end">bound</text>')
    legend = (("xla", "XLA's kernels"), ("stitched", "stitched"), ("library", "GEMM, convolution and other libraries"))
    for i, (colour, label) in enumerate(legend):
        x = left + 150 * i
        parts.append(f'<rect fill="{COLOURS[colour]}" x="{x}" y="{bottom + 6}" width="12" height="12"/>')
        parts.append(f'<text {FONT} x="{x + 18}" y="{bottom + 16}">{escape(label)}</text>')
    size = f'viewBox="0 0 {left + width + 10} {bottom + 28}" width="100%" style="max-width:60rem"'
    return f'<svg {size} role="img">{"".join(parts)}</svg>'


def _kind(kernel: KernelTraffic, stitched: bool) -> str:
    if kernel.library:
        return "library"
    return "stitched" if stitched and kernel.opcode == "custom-call" else "xla"


def _thickest(traffic: Traffic) -> list[KernelTraffic]:
    """Return the kernels that move most, in the order of the program; all others as one."""
    kernels = traffic.kernels
    if len(kernels) <= MOST:
        return list(kernels)
    least = sorted((k.bytes for k in kernels), reverse=True)[MOST]
    kept = [k for k in kernels if k.bytes > least]
    rest = [k for k in kernels if k.bytes <= least]
    moved, launches = sum(k.bytes for k in rest), sum(k.launches for k in rest)
    return [
        *kept,
        replace(rest[0], name=f"{len(rest):,} smaller kernels", bytes=moved, launches=launches, library=False),
    ]
