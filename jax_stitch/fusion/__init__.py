"""Graph -> FusionPlan: which operations share a kernel."""

from jax_stitch.fusion.planner import explore
from jax_stitch.ir.pattern import Cut, FusionPlan, Pattern

__all__ = ["Cut", "FusionPlan", "Pattern", "explore"]
