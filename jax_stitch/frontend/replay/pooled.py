"""Whether a program leaves XLA work that it gives to its pool of threads.

A thread of that pool which waits busily after such work, and one of ours that does so after a kernel, want the same
core.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hlo_parser import ELEMENT_TYPES
from jax_stitch.frontend.replay.launched import LaunchedGraph
from jax_stitch.graph.model import Graph, Node, TensorType

MOST_MULTIPLICATIONS, MOST_BYTES = 1 << 20, 1 << 20
"""Of a product, and of what another operation reads and writes, that XLA:CPU leaves to the thread that comes to it:
half of what its ``ParallelTaskAssigner`` and the cost model of Eigen's contractions have two threads for.
"""

_MOVES = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "reshape", "iota", "after-all"})
_LIBRARY = frozenset({"convolution", "custom-call", "fft"})
"""What a library does, with threads of that pool."""


def leaves_pooled_work(launched: LaunchedGraph) -> bool:
    """Return whether an operation that no kernel takes the place of is large enough, those in bodies included."""
    return any(_is_pooled(graph, node) for graph, node in _left(launched))


def _left(launched: LaunchedGraph) -> Iterator[tuple[Graph, Node]]:
    """Yield the operations that are left to XLA, less those whose values nobody asks for."""
    graph = launched.graph
    inputs_of = {i: launch.inputs for launch in launched.launches for i in launch.nodes}
    waiting, seen = list(graph.results), set[int]()
    while waiting:
        i = waiting.pop()
        if i in seen:
            continue
        seen.add(i)
        waiting += inputs_of.get(i, graph[i].operands)
        if i not in inputs_of:
            yield graph, graph[i]
            for name, body in graph[i].graphs.items():
                yield from _left(launched.children.get((i, name), LaunchedGraph(body)))


def _is_pooled(graph: Graph, node: Node) -> bool:
    if node.op in _MOVES or not isinstance(node.type, TensorType):
        return False
    tensors = [t for t in (node.type, *(graph[o].type for o in node.operands)) if isinstance(t, TensorType)]
    if node.op == "dot":
        dims = tensors[1].dims
        steps = prod(dims[d] for d in node.attributes.get("lhs_contracting_dims", ()))
        return node.type.size * steps > MOST_MULTIPLICATIONS
    moved = sum(t.size * ELEMENT_TYPES[t.dtype].bits // 8 for t in tensors)
    return moved > (MOST_BYTES // 16 if node.op in _LIBRARY else MOST_BYTES)
