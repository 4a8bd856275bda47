"""What a plan brings over XLA's final program, in words: also that it brings nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_stitch.util.formatting import count, format_bytes

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

LIKE = 0.02
"""Bytes that differ by less than this part are as many."""


def verdict(plan: Plan) -> str:
    """Return a sentence for launches and one for bytes, against ``jax.jit``."""
    if plan.unstitched is not None:
        return f"Nothing is stitched: {plan.unstitched}."
    if not plan.kernels:
        stay = "stays as it is" if plan.xla_launches == 1 else "stay as they are"
        return f"Nothing is stitched: XLA's {count(plan.xla_launches, 'launch', 'launches')} {stay}."
    fewer, moved = plan.xla_launches - plan.launches, plan.xla_bytes - plan.bytes
    like = abs(moved) <= LIKE * max(plan.xla_bytes, 1)
    if fewer == 0 and like:
        launches = count(plan.xla_launches, "launch", "launches")
        moved_bytes = format_bytes(plan.xla_bytes)
        return f"Nothing is gained: XLA's program has {launches} as well, and moves as many bytes ({moved_bytes})."
    become = "becomes" if plan.xla_launches == 1 else "become"
    launches = f"{count(plan.xla_launches, 'launch', 'launches')} of XLA {become} {plan.launches:,}"
    if fewer == 0:
        launches = f"As many launches as XLA's program has ({plan.launches:,})"
    traffic = f"{format_bytes(plan.xla_bytes)} of traffic become {format_bytes(plan.bytes)}"
    if like:
        traffic = f"as many bytes move ({format_bytes(plan.bytes)})"
    worse = []
    if fewer < 0:
        worse.append("more launches")
    if moved < 0 and not like:
        worse.append("more bytes")
    launches = launches[0].upper() + launches[1:]
    return f"{launches}, and {traffic}{'; that is ' + ' and '.join(worse) if worse else ''}."
