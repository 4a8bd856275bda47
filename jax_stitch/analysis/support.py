"""Which operations a stitched kernel can hold, and for the others the reason why not."""

from __future__ import annotations

from math import prod
from weakref import WeakKeyDictionary

from hlo_parser import COLLECTIVES
from jax_stitch.analysis.maps import MOVES
from jax_stitch.graph.combiners import counts_once
from jax_stitch.graph.model import Graph, Node, NodeType, TensorType
from jax_stitch.graph.opcodes import calls_python
from jax_stitch.graph.rewrites.argmax import takes_the_left_nan
from jax_stitch.graph.rewrites.donated import SETTLED
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sides import tells_sides_apart
from jax_stitch.graph.sorts import sort_of
from jax_stitch.ir.operations import ELEMENTWISE

DTYPES = frozenset(
    {"pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64"},
)


STORED = frozenset({"c64", "c128"})
"""Types of which kernels read and write elements, and compute their real and imaginary parts alone."""

_OF_STORED = MOVES | {"complex", "real", "imag"}

LIBRARY = {
    "dot": "a library GEMM",
    "convolution": "a library convolution",
    "custom-call": "a library call",
    "fft": "a library FFT",
    "cholesky": "a library factorisation",
    "triangular-solve": "a library solve",
    "sort": "a sort",
    "topk": "a library call",
    "while": "a loop",
    "conditional": "a branch",
    "scatter": "a scatter to data-dependent places",
    "dynamic-update-slice": "an update in place",
    "reduce-window": "overlapping windows",
    "select-and-scatter": "overlapping windows",
    "rng-bit-generator": "XLA's random bit generator",
    "partition-id": "the number of the device",
    **dict.fromkeys(COLLECTIVES, "communication between devices"),
}


def library_word(node: Node) -> str:
    """Return the word for a node of ``LIBRARY``."""
    if node.op in ("reduce-window", "select-and-scatter"):
        elements = prod(w.size for w in node.attributes["window"].dims)
        if elements > MOST_IN_WINDOW:
            return f"{LIBRARY[node.op]} of {elements} elements, more than the {MOST_IN_WINDOW} that a kernel combines"
    return "a call back to Python" if calls_python(node) else LIBRARY[node.op]


MOST_IN_WINDOW = 32
"""Elements of the largest window that a kernel combines."""

MAX_CONSTANT = 64
"""Elements of the largest constant array written into a kernel's text."""


def is_rematerializable(node: Node) -> bool:
    """Return whether a value costs nothing to compute again: it is part of every kernel that uses it."""
    if node.op == "iota":
        return True
    return node.op == "constant" and node.literal is not None and node.literal.size <= MAX_CONSTANT


def is_computed(type: NodeType) -> bool:
    """Return whether kernels compute values of a type: arrays of real numbers."""
    return isinstance(type, TensorType) and type.dtype in DTYPES


def is_view(node: Node) -> bool:
    """Return whether a value is its operand under another name or shape, for which XLA runs nothing."""
    return not node.kernel and node.op in ("reshape", "transpose")


_reasons: WeakKeyDictionary[Graph, dict[int, tuple[Node, str | None]]] = WeakKeyDictionary()


def reason_unsupported(graph: Graph, node: Node) -> str | None:
    """Return why a node cannot be part of a stitched kernel, or ``None`` where it can."""
    reasons = _reasons.get(graph)
    if reasons is None:
        reasons = _reasons[graph] = {}
    known = reasons.get(node.id)
    if known is None or known[0] is not node:
        known = reasons[node.id] = node, _reason_unsupported(graph, node)
    return known[1]


def _reason_unsupported(graph: Graph, node: Node) -> str | None:
    if node.op in LIBRARY:
        return library_word(node)
    if node.op == "get-tuple-element":
        return None if graph[node.operands[0]].op == "reduce" else "part of another operation's result"
    if node.op == "parameter":
        return "an argument"
    if node.op == SETTLED:
        return "a new value in the memory of the old one, that must not be computed twice"
    types = [node.type] if isinstance(node.type, TensorType) else list(getattr(node.type, "elements", ()))
    types += [graph[i].type for i in node.operands]
    for t in types:
        if not isinstance(t, TensorType):
            return "no array"
        if t.dtype not in DTYPES and not (t.dtype in STORED and node.op in _OF_STORED):
            return f"element type {t.dtype}"
        if t.size == 0:
            return "an empty array"
    if node.op == "constant":
        return None if is_rematerializable(node) else "a large constant"
    if node.op == "bitcast-convert":
        same = graph[node.operands[0]].tensor.dims == node.tensor.dims
        return None if same else "bitcast between element widths"
    if node.op == "reduce":
        by_order = "a reduction whose result depends on the order of its elements"
        return _reduce_reason(graph, node) or (by_order if tells_sides_apart(node.graphs["to_apply"]) else None)
    if node.op in ELEMENTWISE or node.op in MOVES or node.op == "iota":
        return None
    return f"operation {node.op}"


def reason_left(graph: Graph, node: Node) -> str | None:
    """Return why a node cannot be part of a kernel in which lanes go over rows, or ``None`` where it can: scans and
    sorts besides.
    """
    if node.op == "get-tuple-element" and graph[node.operands[0]].op == "sort":
        return reason_left(graph, graph[node.operands[0]])
    if node.op == "sort":
        return _sort_reason(graph, node)
    if scan_of(graph, node) is None:
        return reason_unsupported(graph, node)
    if node.tensor.dtype not in DTYPES:
        return f"element type {node.tensor.dtype}"
    return "an empty array" if node.tensor.size == 0 else _reduce_reason(graph, node)


def is_library(graph: Graph, node: Node) -> bool:
    """Return whether a node is a call that no kernel of ours can take the place of."""
    return node.op in LIBRARY and reason_left(graph, node) is not None


def _sort_reason(graph: Graph, node: Node) -> str | None:
    sort = sort_of(graph, node)
    assert sort is not None
    for operand in (graph[o].tensor for o in node.operands):
        if operand.dtype not in DTYPES:
            return f"a sort of element type {operand.dtype}"
        if operand.size == 0 or sort.size == 1:
            return "a sort with nothing to put in order"
    by = _not_scalar(node.graphs["to_apply"])
    return f"a sort that compares by {by}" if by else None


def _reduce_reason(graph: Graph, node: Node) -> str | None:
    combiner = node.graphs["to_apply"]
    if by := _not_scalar(combiner):
        return f"a reduction that combines by {by}"
    arrays = len(node.operands) // 2
    if arrays > 1 and (op := counts_once(combiner, [graph[o] for o in node.operands[arrays:]])):
        return f"a reduction of several arrays that starts from another value than the neutral one of {op}"
    return "a search of NaNs by indices that do not fit their type" if takes_the_left_nan(combiner) else None


def _not_scalar(computation: Graph) -> str | None:
    """Return what a computation of scalars has that no kernel computes: an operation, or one of a type that
    kernels lack.
    """
    for inner in computation.nodes:
        if isinstance(inner.type, TensorType) and inner.tensor.dtype not in DTYPES:
            return f"{inner.op} of element type {inner.tensor.dtype}"
        if inner.op not in ("parameter", "constant") and inner.op not in ELEMENTWISE:
            return inner.op
    return None


ROOTS = ("reduce", "sort")
"""Operations that go over their operands' rows as a whole; what they read is computed for them."""
