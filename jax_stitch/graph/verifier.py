"""Check a graph against the rules of ``model`` and of HLO: what XLA's parser would let pass, a generated kernel would
not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_parser import ELEMENT_TYPES
from hlo_parser.dtypes import COMPLEX_PARTS

from .errors import GraphError
from .model import Graph, Node, NodeType, TensorType, TupleType
from .opcodes import ELEMENTWISE

_NOT_MADE = {"bitcast", "call", "copy", "fusion", "tuple"}
"""Opcodes that no graph holds."""


def verify(graph: Graph) -> None:
    """Raise GraphError, naming the node, where the order, the types or the attributes of a graph (or of one it calls)
    do not hold."""
    parameters = [n.id for n in graph.nodes if n.op == "parameter"]
    if list(graph.parameters) != sorted(graph.parameters) or parameters != list(graph.parameters):
        raise GraphError(f"{graph.name}: parameter nodes {parameters} are not the parameters {list(graph.parameters)}")
    if any(not 0 <= r < len(graph) for r in graph.results) or (graph.single and len(graph.results) != 1):
        raise GraphError(f"{graph.name}: results {list(graph.results)} do not fit its {len(graph)} nodes")
    for position, node in enumerate(graph.nodes):
        if node.id != position or any(not 0 <= o < position for o in node.operands):
            raise GraphError(f"{graph.name}: {node} is at position {position} or reads what comes later")
        try:
            _check(graph, node)
        except _Wrong as wrong:
            operands = ", ".join(str(graph[o].type) for o in node.operands)
            raise GraphError(f"{graph.name}: {node} ({node.name}) of ({operands}): {wrong}") from None
        for called in node.graphs.values():
            verify(called)


class _Wrong(Exception):
    pass


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise _Wrong(message)


def _check(graph: Graph, node: Node) -> None:
    _require(node.op not in _NOT_MADE, "an opcode that graphs do not have")
    _require((node.literal is not None) == (node.op == "constant"), "a literal belongs to a constant")
    operands = [graph[o].type for o in node.operands]
    if node.op in ELEMENTWISE:
        _elementwise(node, operands)
    elif node.op in _CHECKS:
        _CHECKS[node.op](node, operands)


def _tensors(types: Sequence[NodeType]) -> list[TensorType]:
    tensors = [t for t in types if isinstance(t, TensorType)]
    _require(len(tensors) == len(types), "an operand is no array")
    return tensors


def _elements(type_: NodeType) -> tuple[NodeType, ...]:
    return type_.elements if isinstance(type_, TupleType) else (type_,)


def _elementwise(node: Node, types: Sequence[NodeType]) -> None:
    operands, result = _tensors(types), node.tensor
    if node.op == "bitcast-convert":
        widths = [ELEMENT_TYPES[t.dtype].bits * t.size for t in (operands[0], result)]
        _require(widths[0] == widths[1], "the number of bits changes")
        return
    scalars_allowed = {"select": (0,), "clamp": (0, 2)}.get(node.op, ())
    for position, operand in enumerate(operands):
        fits = operand.dims == result.dims or (position in scalars_allowed and not operand.dims)
        _require(fits, f"operand {position} has other dimensions")
    kinds = [o.dtype for o in operands]
    match node.op:
        case "convert":
            pass
        case "compare":
            _require(result.dtype == "pred" and kinds[0] == kinds[1], "compare two of a kind to pred")
        case "is-finite":
            _require(result.dtype == "pred", "the result is pred")
        case "select":
            _require(
                kinds[0] == "pred" and kinds[1] == kinds[2] == result.dtype, "select by pred between two of a kind"
            )
        case "complex":
            _require(kinds[0] == kinds[1] == COMPLEX_PARTS.get(result.dtype), "a complex number of two of its parts")
        case "abs" | "real" | "imag":
            _require(result.dtype == COMPLEX_PARTS.get(kinds[0], kinds[0]), "the type of a complex number's part")
        case _:
            _require(all(k == result.dtype for k in kinds), "operands and result are of one type")


def _constant(node: Node, _: Sequence[NodeType]) -> None:
    literal = node.literal
    assert literal is not None
    expected = ELEMENT_TYPES[node.tensor.dtype].numpy
    _require(
        literal.shape == node.tensor.dims and literal.dtype == expected,
        f"the literal is {literal.dtype}{literal.shape}",
    )
    _require(not literal.flags.writeable, "the literal can be changed")


def _iota(node: Node, _: Sequence[NodeType]) -> None:
    _require(0 <= node.attributes["iota_dimension"] < len(node.tensor.dims), "it counts along no dimension of its own")


def _broadcast(node: Node, types: Sequence[NodeType]) -> None:
    (source,), dims = _tensors(types), node.attributes["dimensions"]
    _require(len(dims) == len(source.dims) and list(dims) == sorted(set(dims)), "dimensions do not rise one for one")
    _require(all(d < len(node.tensor.dims) for d in dims), "a dimension the result does not have")
    _require(source.dims == tuple(node.tensor.dims[d] for d in dims), "sizes differ")
    _same_type(node, source)


def _reshape(node: Node, types: Sequence[NodeType]) -> None:
    (source,) = _tensors(types)
    _require(source.size == node.tensor.size, "the number of elements changes")
    _same_type(node, source)


def _transpose(node: Node, types: Sequence[NodeType]) -> None:
    (source,), order = _tensors(types), node.attributes["dimensions"]
    _require(sorted(order) == list(range(len(source.dims))), "no permutation")
    _require(node.tensor.dims == tuple(source.dims[d] for d in order), "sizes differ")
    _same_type(node, source)


def _slice(node: Node, types: Sequence[NodeType]) -> None:
    (source,), ranges = _tensors(types), node.attributes["slice"]
    _require(len(ranges) == len(source.dims), "one range for each dimension")
    _require(
        all(0 <= s <= e <= n and step > 0 for (s, e, step), n in zip(ranges, source.dims, strict=True)), "out of range"
    )
    _require(node.tensor.dims == tuple(-((s - e) // step) for s, e, step in ranges), "sizes differ")
    _same_type(node, source)


def _dynamic_slice(node: Node, types: Sequence[NodeType]) -> None:
    source, *starts = _tensors(types)
    _require(len(starts) == len(source.dims) and all(not s.dims for s in starts), "one scalar start for each dimension")
    _require(all(a <= b for a, b in zip(node.tensor.dims, source.dims, strict=True)), "larger than what it slices")
    _same_type(node, source)


def _dynamic_update_slice(node: Node, types: Sequence[NodeType]) -> None:
    source, update, *starts = _tensors(types)
    _require(len(starts) == len(source.dims) and all(not s.dims for s in starts), "one scalar start for each dimension")
    _require(source == node.type and source.dtype == update.dtype, "the result is the updated array")
    _require(all(a <= b for a, b in zip(update.dims, source.dims, strict=True)), "the update is larger than the array")


def _concatenate(node: Node, types: Sequence[NodeType]) -> None:
    parts, along = _tensors(types), node.attributes["dimensions"][0]
    _require(sum(p.dims[along] for p in parts) == node.tensor.dims[along], "sizes do not add up")
    for part in parts:
        others = [a == b for d, (a, b) in enumerate(zip(part.dims, node.tensor.dims, strict=True)) if d != along]
        _require(all(others), "sizes differ")
        _same_type(node, part)


def _pad(node: Node, types: Sequence[NodeType]) -> None:
    source, value = _tensors(types)
    _require(not value.dims and value.dtype == source.dtype, "the padding is one value of the same type")
    for size, before, (low, high, interior) in zip(
        node.tensor.dims, source.dims, node.attributes["padding"], strict=True
    ):
        _require(size == max(0, before + low + high + max(0, before - 1) * interior), "sizes differ")
    _same_type(node, source)


def _reverse(node: Node, types: Sequence[NodeType]) -> None:
    _require(types[0] == node.type, "the result is of the same type")
    _require(all(0 <= d < len(node.tensor.dims) for d in node.attributes["dimensions"]), "a dimension it does not have")


def _reduce(node: Node, types: Sequence[NodeType]) -> None:
    tensors = _tensors(types)
    arrays, initial = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
    dims = node.attributes["dimensions"]
    remaining = tuple(n for d, n in enumerate(arrays[0].dims) if d not in dims)
    results = _elements(node.type)
    _require(len(results) == len(arrays) == len(initial), "as many results as arrays and initial values")
    for array, start, result in zip(arrays, initial, results, strict=True):
        _require(array.dims == arrays[0].dims and not start.dims, "arrays of one shape and scalar initial values")
        _require(isinstance(result, TensorType) and result.dims == remaining, "sizes differ")
    combiner = node.graphs["to_apply"]
    _require(
        len(combiner.parameters) == 2 * len(arrays) and len(combiner.results) == len(arrays),
        "the combiner does not fit",
    )


def _dot(node: Node, types: Sequence[NodeType]) -> None:
    left, right = _tensors(types)[:2]
    a = node.attributes
    batch = a.get("lhs_batch_dims", ()), a.get("rhs_batch_dims", ())
    contracted = a.get("lhs_contracting_dims", ()), a.get("rhs_contracting_dims", ())
    for of_left, of_right in (batch, contracted):
        sizes = [left.dims[d] for d in of_left], [right.dims[d] for d in of_right]
        _require(sizes[0] == sizes[1], "batch or contracted sizes differ")
    rest = [
        n
        for operand, side in ((left, 0), (right, 1))
        for d, n in enumerate(operand.dims)
        if d not in batch[side] and d not in contracted[side]
    ]
    _require(node.tensor.dims == (*(left.dims[d] for d in batch[0]), *rest), "sizes differ")


def _element(node: Node, types: Sequence[NodeType]) -> None:
    whole = types[0]
    _require(isinstance(whole, TupleType), "its operand is no tuple")
    _require(_elements(whole)[node.attributes["index"]] == node.type, "the element has another type")


def _while(node: Node, types: Sequence[NodeType]) -> None:
    condition, body = node.graphs["condition"], node.graphs["body"]
    carried = list(types)
    _require(list(_elements(node.type)) == carried, "the result is what it carries")
    for graph in (condition, body):
        _require([graph[p].type for p in graph.parameters] == carried, f"{graph.name} takes something else")
    _require([body[r].type for r in body.results] == carried, f"{body.name} returns something else")
    _require(condition[condition.results[0]].type == TensorType("pred", ()), f"{condition.name} returns no pred")


def _conditional(node: Node, types: Sequence[NodeType]) -> None:
    _require(types[0] in (TensorType("pred", ()), TensorType("s32", ())), "the index is neither pred nor s32")
    branches = [node.graphs[f"branch_{i}"] for i in range(len(node.graphs))]
    expected = [graph[p].type for graph in branches for p in graph.parameters]
    _require(list(types[1:]) == expected, "the branches take something else")
    for graph in branches:
        _require(
            [graph[r].type for r in graph.results] == list(_elements(node.type)), f"{graph.name} returns something else"
        )


def _sort(node: Node, types: Sequence[NodeType]) -> None:
    _require(list(_elements(node.type)) == list(types), "the results are of the operands' types")
    _require(len(node.graphs["to_apply"].parameters) == 2 * len(types), "the comparator does not fit")


def _scatter(node: Node, types: Sequence[NodeType]) -> None:
    count = len(types) // 2
    _require(list(_elements(node.type)) == list(types[:count]), "the results are of the operands' types")


def _same_type(node: Node, source: TensorType) -> None:
    _require(node.tensor.dtype == source.dtype, "the element type changes")


_CHECKS: dict[str, Callable[[Node, Sequence[NodeType]], None]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "conditional": _conditional,
    "constant": _constant,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-tuple-element": _element,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reshape": _reshape,
    "reverse": _reverse,
    "scatter": _scatter,
    "slice": _slice,
    "sort": _sort,
    "transpose": _transpose,
    "while": _while,
}
