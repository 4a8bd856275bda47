"""Graph -> FusionPlan: which operations share a kernel."""

from jax_stitch.fusion.planner import explore
from jax_stitch.ir.pattern import Boundary, FusionPlan, Pattern

__all__ = ["Boundary", "FusionPlan", "Pattern", "explore"]
