"""A plan less some of its kernels: what they would have computed is left to XLA, as it was before it was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.patterns.pattern import Boundary, FusionPlan
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.fusion.rewrites.reductions import in_one_step


def withdrawn(plan: FusionPlan, reasons: Mapping[int, str]) -> FusionPlan:
    """Return ``plan`` without the kernels of these numbers; their operations are left to XLA for the reasons given.

    Nodes keep their ids. Kernels that pass each other partial results of a reduction have to go together.
    """
    if not reasons:
        return plan
    why = {i: reason for k, reason in reasons.items() for p in plan.kernels[k] for i in p.nodes}
    steps = {i for i in why if plan.graph[i].op == PARTIAL}
    boundaries = [Boundary(i, why[i]) for i in sorted(why.keys() - steps) if not is_rematerializable(plan.graph[i])]
    rest = tuple(kernel for k, kernel in enumerate(plan.kernels) if k not in reasons)
    return replace(plan, graph=in_one_step(plan.graph, steps), kernels=rest, boundaries=(*plan.boundaries, *boundaries))
