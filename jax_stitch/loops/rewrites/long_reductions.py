"""Long reductions in a loop's body in two steps, on a GPU: a team has one warp for each place that a step leaves.

The largest of 32,000 scores, as a decoder asks for at each word, would be found by 32 threads of a thousand.
"""

from __future__ import annotations

from math import prod

from jax_stitch.graph import rewrite
from jax_stitch.graph.builder import Builder, with_called
from jax_stitch.graph.combiners import is_neutral
from jax_stitch.graph.model import Graph, Node, TensorType, TupleType
from jax_stitch.graph.rewrites.reductions import steps_of

LEAST_LENGTH = 2048
MOST_PLACES = 1024
"""Of what is left: of more, all threads of a GPU have work."""

PARTS = 128
"""That the first step leaves of each place, at most: as many as the second has about a warp's few steps for."""

LEAST_PARTS = 8


def with_long_reductions_in_steps(graph: Graph, loop: int) -> Graph:
    """Return the graph with such reductions in the body of the ``while`` node ``loop`` made in two steps."""
    return with_called(graph, graph[loop], "body", rewrite(graph[loop].graphs["body"], [in_steps]))


def in_steps(builder: Builder, node: Node) -> int | None:
    """Add a reduction of one long last dimension as one of its parts and one of these; return its id, or None."""
    if node.op != "reduce" or not _may_be_in_steps(builder, node):
        return None
    count = len(node.operands) // 2
    values, initial = [builder[o] for o in node.operands[:count]], node.operands[count:]
    dims = values[0].tensor.dims
    if node.attributes["dimensions"] != (len(dims) - 1,):
        return None
    length, left = dims[-1], dims[:-1]
    parts = max(n for n in range(1, PARTS + 1) if length % n == 0)
    if length < LEAST_LENGTH or prod(left) > MOST_PLACES or parts < LEAST_PARTS:
        return None
    split = (*left, parts, length // parts)
    shaped = [builder.derive(node, "reshape", TensorType(v.tensor.dtype, split), [v.id]) for v in values]
    types = [TensorType(v.tensor.dtype, split[:-1]) for v in values]
    type_ = types[0] if count == 1 else TupleType(tuple(types))
    attributes = {"dimensions": (len(left) + 1,)}
    first = builder.derive(node, "reduce", type_, [*shaped, *initial], attributes, node.graphs)
    made = [first]
    if count > 1:
        made = [builder.derive(node, "get-tuple-element", t, [first], {"index": k}) for k, t in enumerate(types)]
    return builder.derive(node, "reduce", node.type, [*made, *initial], {"dimensions": (len(left),)}, node.graphs)


def _may_be_in_steps(builder: Builder, node: Node) -> bool:
    """Return whether initial values may count twice: they are neutral, or XLA had the reduction in two steps."""
    if steps_of(node) > 1:
        return True
    return len(node.operands) == 2 and is_neutral(node.graphs["to_apply"], builder[node.operands[1]])
