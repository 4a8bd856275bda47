"""Estimate how much work a kernel is: by that a CPU's launcher takes one thread or several."""

from __future__ import annotations

from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.cost.weights import own_weight
from jax_stitch.loops.teams.team import elements_of
from jax_stitch.schedule.model import ScheduledKernel

LOOP_FUNCTION, FUNCTION = 20, 2
"""Bytes' worth of work of a function: of one row's step in a loop, which waits for it, and at least of an element of
straight code, which does not: what memory bounds stays as much as its buffers."""


def work_of(kernel: ScheduledKernel) -> int | None:
    """Return about how many bytes' worth of work a kernel is; None for as much as its buffers. A byte takes as long as
    an operation on one of a vector's lanes.
    """
    work = moved = 0
    for p in (part.pattern for part in kernel.parts):
        match p.loop:
            case Nest(steps=steps, varying=varying, uniform=uniform):
                light, heavy = (sum(one) for one in zip(varying, uniform, strict=True))
                work += int(steps * p.rows * (light + LOOP_FUNCTION * heavy))
            case TeamLoop(likely_trips=trips, rows=rows):
                work += trips * rows * elements_of(p.loop)
            case None:
                work += _straight(kernel.graph, p)
                moved += sum(node_bytes(kernel.graph[i]) for i in {*p.inputs, *p.outputs})
    return max(work, moved) if work > moved else None


def _straight(graph: Graph, pattern: Pattern) -> int:
    """Return the work of straight code: of its elementwise operations by their types."""
    work = 0.0
    for node in (graph[i] for i in pattern.inside):
        if node.op in ELEMENTWISE and isinstance(node.type, TensorType):
            light, heavy = own_weight(node)
            work += node.type.size * (light + FUNCTION * heavy)
    return int(work)
