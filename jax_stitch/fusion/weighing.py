"""What a plan takes by estimate, and what XLA does of that: to judge plans whose kernels are there by these."""

from __future__ import annotations

from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.devices import Device
from jax_stitch.fusion.calls import call_seconds, call_seconds_left
from jax_stitch.fusion.plan_cost import predicted, predicted_left


def estimated_seconds(plan: FusionPlan, device: Device) -> float:
    """Return the seconds of a call of a plan's graph, without what it calls: by its bytes, or by its calls and
    operations if these take longer.
    """
    return max(predicted(plan, device).seconds, call_seconds(plan, device))


def seconds_left(plan: FusionPlan, device: Device) -> float:
    """Return the part of these seconds that XLA's kernels take."""
    return max(predicted_left(plan, device).seconds, call_seconds_left(plan, device))
