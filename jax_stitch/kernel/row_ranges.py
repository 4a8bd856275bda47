"""Index-set splitting of rows: a loop over rows that asks where its row is becomes loops in which the answer is known.

A stencil, a blur or a difference asks at each row whether it is at an edge. A host's compiler makes vectors with masks
of such a loop, or none; what is left between the edges is plain.
"""

from __future__ import annotations

from itertools import pairwise

from jax_stitch.ir.indices.expr import var
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Test
from jax_stitch.kernel.index_sets import cuts, known
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.walk import map_bodies, nodes
from jax_stitch.util.values import replace

MOST_STATEMENTS = 400
"""Statements of all loops of a part that are split: a host's compiler takes as long for them as for other kernels."""

LEAST_ROWS = 16
"""Rows between the edges, of the period: fewer fill no vectors."""


def split_rows(kernel: Kernel) -> Kernel:
    """Return the kernel with its loops over rows, where rows run fastest, split where their choices change."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    shape = part.shape
    if not isinstance(shape, RowShape) or shape.lanes_fastest or shape.period < LEAST_ROWS:
        return part
    return replace(part, body=_Splitting(shape.period).body(part.body))


class _Splitting:
    """Split the loops of a part in their order, until they are long. Inner groups of rows come first."""

    def __init__(self, period: int):
        self._period = period
        self._left = MOST_STATEMENTS

    def body(self, body: st.Body) -> st.Body:
        return tuple(
            new for s in body for new in (self._pieces(s) if isinstance(s, st.Rows) else (map_bodies(s, self.body),))
        )

    def _pieces(self, s: st.Rows) -> tuple[st.Rows, ...]:
        tests = [n for n in nodes(s) if isinstance(n, Test)]
        ends = cuts(ROW, self._period, tests)
        low, high = max(pairwise(ends), key=lambda of: of[1] - of[0])
        if s.high is not None or len(ends) == 2 or high - low < LEAST_ROWS:
            return (s,)
        ranges = [of for of in ((0, low), (low, high), (high, self._period)) if of[0] < of[1]]
        made = tuple(self._piece(s, *of) for of in ranges)
        count = sum(isinstance(n, st.Define | st.Assign) for piece in made for n in nodes(piece))
        if count > self._left:
            return (s,)
        self._left -= count
        return made

    def _piece(self, s: st.Rows, low: int, high: int) -> st.Rows:
        return st.Rows(known(s.body, {ROW: var(ROW, low=low, high=high - 1)}), low, high)
