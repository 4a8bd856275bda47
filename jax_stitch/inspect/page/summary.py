"""Plans, kernels and comparisons as plain HTML: in notebooks, and on the page where no script runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from jax_stitch.inspect.page.highlight import highlight
from jax_stitch.inspect.page.picture import traffic_picture
from jax_stitch.util.formatting import format_bytes, format_seconds

if TYPE_CHECKING:
    from jax_stitch.inspect.report.compare import Comparison
    from jax_stitch.inspect.report.plan import KernelPlan, Plan

MOST = 12
"""Kernels in a summary."""


def summary(plan: Plan) -> str:
    """Return a heading, what is gained, the figures, and the kernels that take longest."""
    parts = [
        f"<h3>{escape(plan.function)} <small>on {escape(str(plan.device))}</small></h3>",
        f"<p>{escape(plan.verdict())}</p>",
        table(("per call", "jax.jit", "stitched", "gain"), plan.figures(), numbers=(1, 2, 3)),
        traffic_picture(plan),
        f"<p>Bound: {format_bytes(plan.bound_bytes)}, every input read once and every output written once.</p>",
    ]
    kernels = sorted(plan.program.after.kernels[: len(plan.kernels)], key=lambda k: -k.seconds)
    if kernels:
        parts.append(
            table(
                ("stitched kernel", "name", "replaces", "launches", "bytes", "predicted"),
                [
                    (
                        k.title,
                        k.name,
                        plan.replaced(k),
                        f"{k.launches:,}",
                        format_bytes(k.bytes),
                        format_seconds(k.seconds),
                    )
                    for k in kernels[:MOST]
                ],
                numbers=(2, 3, 4, 5),
            )
        )
    if len(kernels) > MOST:
        parts.append(f"<p>and {len(kernels) - MOST:,} more.</p>")
    parts += [f"<p>Note: {escape(note)}</p>" for note in plan.all_notes()]
    return "".join(parts)


def kernel_summary(kernel: KernelPlan) -> str:
    """Return a stitched kernel: its figures, what its time is predicted from, and its source, folded."""
    rows = [
        ("blocks x threads", str(kernel.launch)),
        ("launches", f"{kernel.launches:,}"),
        ("read, written", f"{format_bytes(kernel.bytes_read)}, {format_bytes(kernel.bytes_written)}"),
        ("operations", f"{len(kernel.ops):,}"),
        ("how parts meet", " + ".join(kernel.composition)),
        ("schedule", kernel.schedule),
    ]
    if kernel.measured is not None:
        rows.append(("measured", "{}, XLA's own {}".format(*map(format_seconds, kernel.measured))))
    predicted = "" if kernel.latency is None else f"<pre>{escape(str(kernel.latency))}</pre>"
    return (
        f"<h4><code>{escape(kernel.name)}</code></h4>{table(('', ''), rows)}{predicted}"
        f"<details><summary>Source, {kernel.source.count(chr(10)) + 1:,} lines</summary>"
        f"<pre>{highlight(kernel.source)}</pre></details>"
    )


def comparison_summary(comparison: Comparison) -> str:
    """Return a comparison: how much faster, the figures, and whether the results agree."""
    ratio = comparison.speedup
    faster = f"{ratio:.2f} times as fast as jax.jit" if ratio > 1.02 else "no faster than jax.jit"
    if ratio < 0.98:
        faster = f"slower than jax.jit: it takes {1 / ratio:.2f} times as long"
    wrong = [f"<p><b>{escape(str(leaf))}</b></p>" for leaf in comparison.leaves if not leaf.agrees]
    agreement = "Results agree." if comparison.agrees else "Results DISAGREE."
    return (
        f"<h3>{escape(comparison.function)} <small>on {escape(comparison.device)}</small></h3>"
        f"<p>Stitched it is {faster}. {agreement}</p>{''.join(wrong)}"
        + table(("", "jax.jit", "stitched", "gain"), comparison.rows(), numbers=(1, 2, 3))
        + (f"<p>{escape(noise)}</p>" if (noise := comparison.noise()) else "")
        + "".join(f"<p>{escape(p.device.name)}: {escape(p.verdict())}</p>" for p in comparison.plans)
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return an HTML table of texts; the columns in ``numbers`` are aligned to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        styles = (' style="text-align:right"' if i in numbers else ' style="text-align:left"' for i in range(len(row)))
        return "".join(f"<{tag}{s}>{escape(c)}</{tag}>" for s, c in zip(styles, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', header)}</tr></thead><tbody>{body}</tbody></table>"
