"""What a plan is about, operation by operation: XLA's kernels and ours over the same operations, by the user's names.

``planned(plan)`` reads the plan's two HLO texts; the plan page, ``to_networkx`` and ``diff`` are made of what it
returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch.inspect.planned.final import final_kernels
from jax_stitch.inspect.planned.model import NOWHERE, Operation, PlannedProgram, Program, ProgramKernel, Transfer
from jax_stitch.inspect.planned.operations import Listing, listing_of
from jax_stitch.inspect.planned.programs import after, before

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

__all__ = ["NOWHERE", "Operation", "PlannedProgram", "Program", "ProgramKernel", "Transfer", "planned"]


def planned(plan: Plan) -> PlannedProgram:
    """Return the operations of a plan's program under both programs' kernels; none where its HLO cannot be read."""
    if not plan.hlo:
        nothing = Program((), (), (), (), ())
        return PlannedProgram((), nothing, nothing, ())
    module = hlo_parser.parse(plan.hlo)
    final = final_kernels(hlo_parser.parse(plan.xla_hlo), module)
    try:
        listing = listing_of(graphs.build(module))
    except graphs.GraphError:
        listing = Listing((), (), ())
    operations = listing.operations
    xla = before(operations, final, plan.xla_traffic, plan.device)
    stitched = xla if not plan.kernels else after(operations, listing.results, plan, xla, final)
    return PlannedProgram(operations, xla, stitched, listing.computations)
