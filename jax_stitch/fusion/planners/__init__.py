"""The planners by name."""

from types import MappingProxyType

from jax_stitch.fusion.outcome import Planner
from jax_stitch.fusion.planners import beam, ilp, none, span
from jax_stitch.util.options.planner_names import PlannerName

PLANNERS = MappingProxyType(
    {
        PlannerName.BEAM: Planner(beam.choose, stitches_loops=True, packs=True, compares=True, begin=beam.begin),
        PlannerName.ILP: Planner(ilp.choose, stitches_loops=True, packs=True, compares=False),
        PlannerName.SPAN: Planner(span.choose, stitches_loops=False, packs=False, compares=False),
        PlannerName.NONE: Planner(none.choose, stitches_loops=False, packs=False, compares=False),
    }
)

__all__ = ["PLANNERS"]
