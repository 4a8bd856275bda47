"""Scatters into what another scatter has made, as one.

The gradient of a table of embeddings that is read in several places is a chain of scatters, of which XLA joins some,
other ones from version to version. Each is a launch over the table: with the indices and updates of both, one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_stitch.graph.builder import Builder, copied, freeze, graph_key, moved
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.util.values import replace

_PROMISES = frozenset({"unique_indices", "indices_are_sorted"})
"""What holds of each scatter's indices, not of those of both."""


def joined(graph: Graph) -> Graph:
    """Return the graph with such scatters joined, the updates of the first before those of the second."""
    pairs = {n.id: n.operands[0] for n in graph.nodes if n.op == "scatter" and _may_join(graph, n)}
    if not pairs:
        return graph
    kernels = {graph[first].kernel: graph[second].kernel for second, first in pairs.items()}
    staying = {i for first in pairs.values() for i in _read_elsewhere(graph, graph[first])}
    parts: dict[int, tuple[int, ...]] = {}
    """The operand, the indices and the updates of a scatter that goes on in another."""

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int:
        operands = tuple(ids[o] for o in node.operands)
        kernel = node.kernel
        while kernel in kernels and node.id not in staying:
            kernel = kernels[kernel]
        node = replace(node, kernel=kernel)
        if node.id in pairs:
            array, *before = parts[pairs[node.id]]
            axes = _axes(node)
            both = [_concatenated(builder, node, a, b, d) for a, b, d in zip(before, operands[-2:], axes, strict=True)]
            operands = (array, both[0], both[1])
            node = replace(node, attributes=freeze(_told(node.attributes)))
        parts[node.id] = operands
        return builder.add(moved(node, -1, operands))  # A first one has no readers then, and is dropped.

    return copied(graph, instead)


def _may_join(graph: Graph, second: Node) -> bool:
    """Return whether a scatter goes on with the result of another that nothing else reads, in the same way."""
    first = graph[second.operands[0]]
    if first.op != "scatter" or len(second.operands) != 3 or len(first.operands) != 3 or first.id in graph.result_set:
        return False
    if tuple(graph.users[first.id]) != (second.id,) or _told(first.attributes) != _told(second.attributes):
        return False
    combine = second.graphs["to_apply"]
    if neutral_value(combine, second.tensor.dtype) is None or graph_key(combine) != graph_key(first.graphs["to_apply"]):
        return False
    if not _has_one_dimension(graph, first) or not _has_one_dimension(graph, second):
        return False
    along = _axes(second)
    for k, axis in enumerate(along, start=1):
        shapes = [list(graph[n.operands[k]].tensor.dims) for n in (first, second)]
        for dims in shapes:
            del dims[axis]
        if shapes[0] != shapes[1]:
            return False
    return bool(first.kernel)


def _read_elsewhere(graph: Graph, scatter: Node) -> set[int]:
    """Return what a scatter's kernel computes that other kernels read, and what that is made of: it stays a kernel."""
    read_elsewhere: set[int] = set()
    for n in reversed(graph.nodes):
        if n.kernel == scatter.kernel and n.id != scatter.id:
            users = graph.users[n.id]
            if n.id in graph.result_set or any(u in read_elsewhere or graph[u].kernel != scatter.kernel for u in users):
                read_elsewhere.add(n.id)
    return read_elsewhere


def _told(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attributes.items() if k not in _PROMISES}


def _has_one_dimension(graph: Graph, scatter: Node) -> bool:
    """Return whether its updates are numbered along one dimension of the indices, and no other is a batch's."""
    a, indices = scatter.attributes, graph[scatter.operands[1]].tensor.dims
    updates = graph[scatter.operands[2]].tensor.dims
    if a.get("input_batching_dims") or a["index_vector_dim"] not in range(len(indices)) or len(indices) != 2:
        return False
    return len(updates) == len(a["update_window_dims"]) + 1


def _axes(scatter: Node) -> tuple[int, int]:
    """Return the dimensions of the indices and of the updates along which both are numbered."""
    a = scatter.attributes
    window = a["update_window_dims"]
    return 1 - a["index_vector_dim"], next(d for d in range(len(window) + 1) if d not in window)


def _concatenated(builder: Builder, scatter: Node, first: int, second: int, axis: int) -> int:
    a, b = builder[first].tensor, builder[second].tensor
    dims = tuple(n + b.dims[d] if d == axis else n for d, n in enumerate(a.dims))
    type_ = TensorType(a.dtype, dims)
    return builder.derive(scatter, "concatenate", type_, [first, second], {"dimensions": (axis,)})
