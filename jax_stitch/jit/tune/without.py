"""A planned function without some of its kernels: what they would have computed is left to XLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jax_stitch.fusion import FusionPlan
from jax_stitch.fusion.withdraw import withdrawn
from jax_stitch.jit.tune.units import by_graph, numbered, units_of
from jax_stitch.pipeline import Stitched, StitchedKernel


def without(stitched: Stitched, reasons: Mapping[int, str]) -> Stitched:
    """Return ``stitched`` less the kernels of these numbers, and those that hand partial results to or from them; the
    reasons stand on the plan.
    """
    if not reasons:
        return stitched
    kernels = by_graph(stitched.kernels)

    def left(plan: FusionPlan) -> tuple[FusionPlan, list[StitchedKernel]]:
        own = kernels.get(id(plan.graph), [])
        gone: dict[int, str] = {}
        for unit in units_of(plan.graph, own):
            why = [reasons[own[n].number] for n in unit.numbers if own[n].number in reasons]
            gone |= dict.fromkeys(unit.numbers, why[0]) if why else {}
        rest = withdrawn(plan, gone)
        kept = [
            replace(k, scheduled=replace(k.scheduled, graph=rest.graph)) for n, k in enumerate(own) if n not in gone
        ]
        parts = tuple(tuple(p.pattern for p in k.scheduled.parts) for k in kept)
        children: dict[tuple[int, str], FusionPlan] = {}
        for key, child in plan.children.items():
            children[key], more = left(child)
            kept += more
        return replace(rest, kernels=parts, children=children), kept

    plan, kept = left(stitched.plan)
    return replace(stitched, plan=plan, kernels=numbered(kept))
