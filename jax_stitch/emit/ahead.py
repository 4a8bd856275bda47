"""Which elements a pass asks for before it comes to them."""

from __future__ import annotations

from jax_stitch.ir.indices import Expr
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW
from jax_stitch.schedule.model import Part


def step_ahead(part: Part, address: Expr) -> int | None:
    """Return how far the next place's element is, where a block's rows are neighbours in memory and its places far
    apart.
    """
    if not part.ahead:
        return None
    variables = {v.name: v for v in address.variables()}
    if not {ROW, PLACE} <= variables.keys() <= {ROW, PLACE, BATCH} or address.stride_of(variables[ROW]) != 1:
        return None
    step = address.stride_of(variables[PLACE])
    return step if step is not None and abs(step) > part.split.rows_per_block else None
