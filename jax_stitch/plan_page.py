"""A fusion plan as one HTML page that needs nothing else: no script, no font, no file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from jax_stitch.text import format_bytes

if TYPE_CHECKING:
    from jax_stitch.capture.traffic import KernelTraffic, Traffic
    from jax_stitch.plan import KernelPlan, Plan

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --xla: #5b8def; --stitched: #e8833a; --library: #9aa0a6;
} body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; } h1 { font-size:
1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h1 small { font-weight: normal; opacity: .7; } table {
border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid
var(--line); } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } pre { background: var(--soft);
padding: .8rem; overflow: auto; max-height: 40rem; font-size: 12.5px; line-height: 1.4; } details { margin: .5rem 0; }
summary { cursor: pointer; } code { font-size: 13px; } .chip { display: inline-block; padding: 0 .45rem; margin: .1rem;
border-radius: .6rem; background: var(--soft); font-size: 12.5px; } .k { color: #8250df; } .c { opacity: .6; font-style:
italic; } .d { color: #0a7d5a; } .n1 { color: #b35900; } svg text { font: 12px system-ui, sans-serif; fill:
currentColor; } svg rect { stroke: Canvas; stroke-width: 1; } .xla { fill: var(--xla); } .stitched { fill:
var(--stitched); } .library { fill: var(--library); }
"""

TOKEN = re.compile(
    r"(?P<c>//[^\n]*|/\*.*?\*/)|(?P<d>^[ \t]*\#[^\n]*)|(?P<s>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<k>\b(?:alignas|auto|bool|break|case|char|const|constexpr|continue|do|double|else|extern|float|for|if|inline|int|"
    r"int8_t|int16_t|int32_t|int64_t|long|namespace|return|short|signed|sizeof|static|struct|switch|template|typename|"
    r"uint8_t|uint16_t|uint32_t|uint64_t|unsigned|using|void|while)\b)"
    r"|(?P<n1>\b(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)[fFuUlL]*\b)",
    re.DOTALL | re.MULTILINE,
)


def page(plan: Plan) -> str:
    """The page's HTML text."""
    title = f"{plan.function} on {plan.device.name}"
    sections = [
        f"<h1>{escape(plan.function)} <small>{escape(str(plan.device))}</small></h1>",
        _table(("per call", "jax.jit", "stitched", "ratio"), plan.figures(), numbers=(1, 2, 3)),
        f"<p>Bound: {format_bytes(plan.bound_bytes)}, every input read once and every output written once.</p>",
        "<h2>Device-memory traffic</h2>",
        _traffic_picture(plan),
        f"<h2>Stitched kernels ({len(plan.kernels)})</h2>",
        *_kernels(plan),
        f"<h2>Left to XLA ({len(plan.boundaries)})</h2>",
        _table(
            ("instructions", "op", "reason", "names"),
            [(str(len(bs)), op, reason, ", ".join(b.instruction for b in bs)) for (op, reason), bs in plan.stops()],
            numbers=(0,),
        ),
        *(f"<p>Note: {escape(note)}</p>" for note in plan.all_notes()),
        "<h2>HLO</h2>",
        f"<details><summary>XLA's optimized HLO, {plan.hlo.count(chr(10)) + 1:,} lines</summary>"
        f"<pre>{escape(plan.hlo)}</pre></details>",
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(sections)}</body></html>\n"
    )


def highlight(source: str) -> str:
    """C++ as HTML, with comments, directives, keywords and numbers marked."""
    parts: list[str] = []
    end = 0
    for match in TOKEN.finditer(source):
        parts.append(escape(source[end : match.start()]))
        text = escape(match.group())
        parts.append(text if match.lastgroup == "s" else f'<span class="{match.lastgroup}">{text}</span>')
        end = match.end()
    return "".join([*parts, escape(source[end:])])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if i in numbers else ''}>{escape(c)}</{tag}>" for i, c in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', header)}</tr></thead><tbody>{body}</tbody></table>"


def _kernels(plan: Plan) -> Iterable[str]:
    if not plan.kernels:
        yield "<p>None.</p>"
        return
    yield _table(
        ("kernel", "launches", "blocks x threads", "composition", "read", "written", "ops", "XLA kernels"),
        [
            (
                k.name,
                f"{k.launches:,}",
                str(k.launch),
                " + ".join(k.composition),
                format_bytes(k.bytes_read),
                format_bytes(k.bytes_written),
                str(len(k.ops)),
                str(len(k.xla_kernels)),
            )
            for k in plan.kernels
        ],
        numbers=(1, 4, 5, 6, 7),
    )
    lines = _instruction_lines(plan.hlo)
    for kernel in plan.kernels:
        yield _kernel(kernel, lines)


def _kernel(kernel: KernelPlan, lines: dict[str, str]) -> str:
    chips = "".join(f'<span class="chip">{escape(name)}</span>' for name in kernel.xla_kernels)
    hlo = "\n".join(lines.get(op, f"{op} (of a merged or rewritten instruction)") for op in kernel.ops)
    return (
        f"<h3><code>{escape(kernel.name)}</code></h3><p>{escape(kernel.schedule)}</p>"
        f"<p>In place of {chips or 'nothing'}</p>"
        f"<details><summary>{len(kernel.ops)} HLO instructions</summary><pre>{escape(hlo)}</pre></details>"
        f"<details open><summary>Source</summary><pre>{highlight(kernel.source)}</pre></details>"
    )


def _instruction_lines(hlo: str) -> dict[str, str]:
    """Each instruction's line by its name; the metadata, which is long, is left out."""
    found: dict[str, str] = {}
    for line in hlo.splitlines():
        match = re.match(r"\s+(?:ROOT )?%?([^\s=]+) = ", line)
        if match:
            found[match.group(1)] = re.sub(r", metadata=\{.*", "", line.strip())
    return found


def _traffic_picture(plan: Plan) -> str:
    """Both programs as bars of the same scale, a rectangle for each kernel as wide as its bytes.

    The bound is a line across them.
    """
    programs: tuple[tuple[str, Traffic], ...] = (("jax.jit", plan.xla_traffic), ("stitched", plan.stitched_traffic))
    width, left, height = 860, 70, 34
    longest = max(*(t.bytes for _, t in programs), plan.bound_bytes, 1)
    parts: list[str] = []
    for row, (label, traffic) in enumerate(programs):
        y = 24 + row * (height + 14)
        parts.append(f'<text x="0" y="{y + 21}">{label}</text>')
        x = float(left)
        for kernel in traffic.kernels:
            w = width * kernel.bytes / longest
            about = f"{kernel.name} ({kernel.opcode}): {kernel.launches:,} launches, {format_bytes(kernel.bytes)}"
            parts.append(
                f'<rect class="{_colour(kernel, stitched=row == 1)}" x="{x:.1f}" y="{y}" width="{max(w, 1):.1f}" '
                f'height="{height}"><title>{escape(about)}</title></rect>'
            )
            x += w
    bound = left + width * plan.bound_bytes / longest
    bottom = 24 + 2 * (height + 14)
    parts.append(
        f'<line x1="{bound:.1f}" y1="14" x2="{bound:.1f}" y2="{bottom}" stroke="currentColor" stroke-dasharray="4"/>'
    )
    parts.append(f'<text x="{bound - 4:.1f}" y="12" text-anchor="end">bound</text>')
    legend = (("xla", "XLA's kernels"), ("stitched", "stitched"), ("library", "GEMM, convolution and other libraries"))
    for i, (colour, label) in enumerate(legend):
        x = left + 150 * i
        parts.append(f'<rect class="{colour}" x="{x}" y="{bottom + 6}" width="12" height="12"/>')
        parts.append(f'<text x="{x + 18}" y="{bottom + 16}">{escape(label)}</text>')
    return f'<svg viewBox="0 0 {left + width + 10} {bottom + 28}" width="100%" role="img">{"".join(parts)}</svg>'


def _colour(kernel: KernelTraffic, stitched: bool) -> str:
    if kernel.library:
        return "library"
    return "stitched" if stitched and kernel.opcode == "custom-call" else "xla"
