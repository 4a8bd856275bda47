"""Graph -> FusionPlan: which operations share a kernel."""

from jax_stitch.analysis.patterns.pattern import Boundary, FusionPlan, Pattern
from jax_stitch.fusion.planner import explore

__all__ = ["Boundary", "FusionPlan", "Pattern", "explore"]
