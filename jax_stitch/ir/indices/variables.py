"""The variables that the lowering of patterns gives to loops, and the indices of rows and places in terms of them."""

from __future__ import annotations

from jax_stitch.ir.indices.expr import Expr, var

BLOCK = "block"
ROW = "row"
BATCH = "batch"
PLACE = "j"
RUN = "run"
TERM = "q"
"""Which of its terms a reduction is at."""


def row_index(rows: int, period: int | None = None) -> Expr:
    """Return the number of a row; as ``batch * period + row`` where rows are processed in batches of ``period``."""
    if period is None or period == rows:
        return var(ROW, rows)
    return var(BATCH, rows // period) * period + var(ROW, period)


def place_index(size: int, period: int | None = None) -> Expr:
    """Return a place inside a row; as ``run * period + j`` where places are processed in runs of ``period``."""
    if period is None or period == size:
        return var(PLACE, size)
    return var(RUN, size // period) * period + var(PLACE, period)
