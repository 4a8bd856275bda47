"""Reductions of the same places over the same dimensions, in one pass on a CPU: what they read is read once.

A normalisation's gradient has two sums over each image, of the gradient and of it by what was normalised: as passes of
their own each reads, and computes, all that they have in common.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.schedule.bodies import LONGEST, statements
from jax_stitch.schedule.model import InnerReducePass, RowPass
from jax_stitch.schedule.row_passes import PatternView
from jax_stitch.schedule.walks import walk_pass
from jax_stitch.util.values import replace


def with_reductions_beside(
    shape: PatternView, passes: Sequence[RowPass], cached: Collection[int]
) -> tuple[RowPass, ...]:
    """Return the passes, with those that reduce alike, and have what they read or compute in common, as one, where the
    last of them was.
    """
    made: list[RowPass] = []
    for s in passes:
        if isinstance(s, InnerReducePass):
            for k in range(len(made) - 1, -1, -1):
                earlier = made[k]
                if isinstance(earlier, InnerReducePass) and _go_together(shape, earlier, s, cached):
                    between = [walk_pass(shape, p, cached, ()) for p in (*made[k + 1 :], s)]
                    if not any(i in earlier.reduces for walk in between for i, _ in walk.cached):
                        s = replace(earlier, beside=(*earlier.beside, s.reduce))
                        del made[k]
                    break
        made.append(s)
    return tuple(made)


def _go_together(shape: PatternView, a: InnerReducePass, b: InnerReducePass, cached: Collection[int]) -> bool:
    if (a.size, a.reduced) != (b.size, b.reduced) or not (is_simple(shape, a.reduce) and is_simple(shape, b.reduce)):
        return False
    if shape.inner_reduce_elements(a) != shape.inner_reduce_elements(b):
        return False
    of_a, of_b = ({*w.computed, *w.loaded} for w in (walk_pass(shape, s, cached, ()) for s in (a, b)))
    common = {e for e in of_a & of_b if e[1] and not is_rematerializable(shape.graph[e[0]])}
    return bool(common) and statements(shape, of_a | of_b) <= LONGEST


def is_simple(shape: PatternView, i: int) -> bool:
    """Return whether a reduction is of one array, and its accumulators can start from a neutral element."""
    reduce = shape.graph[i]
    if len(reduce.operands) != 2:
        return False
    return neutral_value(reduce.graphs["to_apply"], shape.graph[reduce.operands[0]].tensor.dtype) is not None
