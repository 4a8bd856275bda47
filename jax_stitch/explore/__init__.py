"""Graph -> FusionPlan: which operations share a kernel."""

from jax_stitch.explore.pattern import Cut, FusionPlan, Pattern
from jax_stitch.explore.planner import explore

__all__ = ["Cut", "FusionPlan", "Pattern", "explore"]
