"""The page of two plans: the first one's operations under the kernels of both."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from jax_stitch.inspect.page.html import EXPLAINING, assembled
from jax_stitch.inspect.page.payload import drawn_numbers, payload, program_columns, with_details
from jax_stitch.inspect.page.summary import table
from jax_stitch.inspect.planned import NOWHERE, Program

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan_diff import PlanDiff


def difference_page(diff: PlanDiff, seconds: float = EXPLAINING) -> str:
    """Return the HTML text of a page of two plans."""
    data = payload(diff.left, seconds)
    data["function"] = f"{diff.left.function}: {diff.names[0]} and {diff.names[1]}"
    data["verdict"] = diff.verdict()
    data["programs"][1]["name"] = diff.names[0]
    texts = {text: n for n, text in enumerate(data["strings"])}
    other = program_columns(diff.names[1], _moved(diff), drawn_numbers(diff.left.program))
    with_details(other["kernels"], diff.right.kernels, lambda text: texts.setdefault(text, len(texts)))
    for kernel in other["kernels"]:
        # Its baseline is another compilation, whose kernels the page does not have.
        kernel |= {"replaces": [], "shares": [], "foreign": True}
    data["programs"].append(other)
    data["strings"] = list(texts)
    data["differences"] = {
        "verdict": diff.verdict(),
        "rows": [{"what": c.what, "left": list(c.left), "right": list(c.right)} for c in diff.changes],
    }
    data["totals"] = [_totals(diff, 0), _totals(diff, 1)]
    return assembled(f"{data['function']}", data, difference_summary(diff))


def difference_summary(diff: PlanDiff) -> str:
    """Return figures and a sentence, as plain HTML."""
    return (
        f"<h3>{escape(diff.left.function)}: {escape(diff.names[0])} and {escape(diff.names[1])}</h3>"
        f"<p>{escape(diff.verdict())}</p>"
        + table(("per call", *diff.names, "change"), diff.figures(), numbers=(1, 2, 3))
    )


def _totals(diff: PlanDiff, side: int) -> dict[str, Any]:
    plan = (diff.left, diff.right)[side]
    return {
        "launches": plan.launches,
        "bytes": plan.bytes,
        "seconds": plan.program.after.seconds,
    }


def _moved(diff: PlanDiff) -> Program:
    """Return the second plan's stitched program over the first one's operations."""
    program, count = diff.right.program.after, len(diff.left.program.operations)
    kernel_of = [NOWHERE] * count
    moved, taken = [0.0] * count, [0.0] * count
    for i, here in enumerate(diff.places):
        if here != NOWHERE:
            kernel_of[here] = program.kernel_of[i]
            moved[here], taken[here] = program.op_bytes[i], program.op_seconds[i]
    kernels = [
        replace(k, members=tuple(diff.places[i] for i in k.members if diff.places[i] != NOWHERE))
        for k in program.kernels
    ]
    return Program(tuple(kernels), tuple(kernel_of), program.transfers, tuple(moved), tuple(taken))
