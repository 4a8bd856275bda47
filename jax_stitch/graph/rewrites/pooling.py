"""``select-and-scatter``, which XLA expands into a window's choice of indices and a scatter to them, put back together.

XLA's expansion is a ``reduce-window`` of the array and one iota a dimension, whose combiner keeps the indices of the
element it selects (-1 for none), and a ``scatter`` of the sources to these indices. Replayed, XLA makes the same of it
again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..builder import Builder, moved
from ..model import Graph, GraphLayouts, Node, TensorType


def restore_select_and_scatter(builder: Builder, node: Node) -> int | None:
    """Return the ``select-and-scatter`` that a ``scatter`` is the end of; ``None`` for any other."""
    if node.op != "scatter" or len(node.operands) != 3:
        return None
    initial, sources = builder[node.operands[0]], builder[node.operands[2]]
    rank = len(node.tensor.dims)
    chosen = _chosen(builder, node, rank)
    if chosen is None or initial.op != "broadcast" or initial.attributes["dimensions"]:
        return None
    array, count = builder[chosen.operands[0]], builder[chosen.operands[1]].tensor
    select = _select(chosen.graphs["to_apply"], rank)
    window = chosen.attributes["window"].dims
    counts_itself = all(_is_iota(builder[o], d) for d, o in enumerate(chosen.operands[1 : rank + 1]))
    plain = all(w.window_dilation == w.base_dilation == 1 and not w.reversed for w in window)
    none = all(_is_minus_one(builder[o]) for o in chosen.operands[rank + 2 :])
    if select is None or not counts_itself or not none or not plain or array.tensor.dims != count.dims:
        return None
    if not all(kept <= whole for kept, whole in zip(node.tensor.dims, array.tensor.dims, strict=True)):
        return None
    if not array.tensor.dtype == sources.tensor.dtype == node.tensor.dtype:
        return None
    windows = _dims(chosen)
    source = builder.derive(node, "reshape", TensorType(sources.tensor.dtype, windows), [sources.id])
    attributes = {"window": chosen.attributes["window"]}
    graphs = {"select": select, "scatter": node.graphs["to_apply"]}
    whole = builder.derive(
        node, "select-and-scatter", array.type, [array.id, source, initial.operands[0]], attributes, graphs
    )
    # What lies beyond the operand is dropped by a scatter: so XLA does a slice of one.
    cut = tuple((0, size, 1) for size in node.tensor.dims)
    return builder.derive(node, "slice", node.type, [whole], {"slice": cut})


def _chosen(builder: Builder, node: Node, rank: int) -> Node | None:
    """Return the ``reduce-window`` whose elements 1, 2, ... are a scatter's indices along dimension 0, 1, ..., one
    update of one element for each window.
    """
    a, indices = node.attributes, builder[node.operands[1]]
    if a["scatter_dims_to_operand_dims"] != tuple(range(rank)) or a.get("input_batching_dims"):
        return None
    if a["index_vector_dim"] != len(indices.tensor.dims) - 1 or indices.tensor.dims[-1] != rank:
        return None
    while indices.op == "reshape" and rank > 1:
        indices = builder[indices.operands[0]]
    last = len(indices.tensor.dims) - 1
    columns: tuple[int, ...] = (indices.id,)
    if rank > 1:
        if indices.op != "concatenate" or indices.attributes["dimensions"] != (last,) or len(indices.operands) != rank:
            return None
        columns = indices.operands
    sources: set[int] = set()
    for k, column in enumerate(columns):
        element = builder[column]
        while element.op == "reshape":
            element = builder[element.operands[0]]
        if element.op != "get-tuple-element" or element.attributes["index"] != k + 1:
            return None
        sources.add(element.operands[0])
    chosen = builder[sources.pop()]
    if sources or chosen.op != "reduce-window" or len(chosen.operands) != 2 * (rank + 1):
        return None
    one_each = builder[node.operands[2]].tensor.size == TensorType("pred", _dims(chosen)).size
    return chosen if one_each and len(_dims(chosen)) == rank else None


def _dims(window: Node) -> tuple[int, ...]:
    first = window.type.elements[0]  # type: ignore[union-attr]
    assert isinstance(first, TensorType)
    return first.dims


def _is_iota(node: Node, dimension: int) -> bool:
    return node.op == "iota" and node.attributes["iota_dimension"] == dimension


def _is_minus_one(node: Node) -> bool:
    return node.literal is not None and node.literal.size == 1 and int(node.literal.reshape(())) == -1


def _select(graph: Graph, rank: int) -> Graph | None:
    """Return the ``select`` of a combiner that keeps the left element and its indices where ``or(and(select, left is
    one), right is none)``, else takes the right ones.
    """
    parameters, count = graph.parameters, rank + 1
    if len(parameters) != 2 * count or len(graph.results) != count:
        return None
    results = [graph[r] for r in graph.results]
    keeps = {r.operands[0] for r in results if r.op == "select"}
    pairs = [r.operands[1:] for r in results]
    if len(keeps) != 1 or pairs != [(parameters[k], parameters[count + k]) for k in range(count)]:
        return None
    for kept, missing in _either(graph, graph[keeps.pop()], "or"):
        for selected, known in _either(graph, kept, "and"):
            if _is_none(graph, missing, parameters[count + 1], True) and _is_none(graph, known, parameters[1], False):
                return _of_two(graph, selected, parameters[0], parameters[count])
    return None


def _either(graph: Graph, node: Node, op: str) -> Iterator[tuple[Node, Node]]:
    """Yield the operands of a binary operation, either first; nothing of another operation."""
    if node.op == op:
        left, right = (graph[o] for o in node.operands)
        yield left, right
        yield right, left


def _is_none(graph: Graph, node: Node, index: int, is_it: bool) -> bool:
    """Return whether a node says that an index is -1, or with ``is_it`` false that it is not."""
    if node.op == "not":
        return _is_none(graph, graph[node.operands[0]], index, not is_it)
    if node.op != "compare" or node.attributes["direction"] != ("EQ" if is_it else "NE"):
        return False
    left, right = (graph[o] for o in node.operands)
    return (left.id == index and _is_minus_one(right)) or (right.id == index and _is_minus_one(left))


def _of_two(graph: Graph, result: Node, left: int, right: int) -> Graph | None:
    """Return the computation of ``result`` from two parameters; ``None`` where it needs another."""
    builder = Builder(f"{graph.name}.select")
    ids = {i: builder.parameter(graph[i].type, graph[i].name, graph[i].source) for i in (left, right)}
    for node in graph.nodes[: result.id + 1]:
        if node.id not in ids and all(o in ids for o in node.operands) and node.op != "parameter":
            ids[node.id] = builder.add(moved(node, -1, tuple(ids[o] for o in node.operands)))
    return builder.finish([ids[result.id]], True, GraphLayouts()) if result.id in ids else None
