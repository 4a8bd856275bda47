"""How a split of the work over rows reaches each value: the propagation rules of the 2018 paper's Table 1 on factored
dimensions.

A split divides the work into rows, numbered by one linear index. A value's binding says, for every dimension, which
part of that dimension's index comes from the row number and which part runs inside the row. A dimension is a product of
factors, major to minor; a factor with stride ``s`` and size ``n`` has index ``(row / s) % n``, and a factor without
stride runs inside the row. So a dimension of 1024 rows that a reshape takes apart into 8 x 128 stays bound, as factors
of strides 128 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from msgspec import Struct

from jax_stitch.analysis.maps import Index, gather_shape, value_of
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.scans import scan_of
from jax_stitch.graph.sorts import sort_of
from jax_stitch.ir.indices import Expr, const, var
from jax_stitch.ir.indices.variables import row_index


class Factor(NamedTuple):
    """``size`` consecutive values of a dimension's index; ``stride`` in rows, or ``None`` inside the row."""

    size: int
    stride: int | None = None

    def __str__(self) -> str:
        return f"{self.size}" if self.stride is None else f"row/{self.stride}%{self.size}"


Dim = tuple[Factor, ...]
Binding = tuple[Dim, ...]


def inner(size: int) -> Dim:
    """Return a dimension that runs wholly inside the row."""
    return (Factor(size),) if size != 1 else ()


def rows_of(dims: Sequence[int], row_dims: Sequence[int]) -> Binding:
    """Return the split whose rows are the dimensions ``row_dims`` of an array, numbered row-major in the order of the
    dimensions.
    """
    strides: dict[int, int] = {}
    stride = 1
    for d in sorted(row_dims, reverse=True):
        strides[d] = stride
        stride *= dims[d]
    return tuple(_tidy((Factor(size, strides[d]),)) if d in strides else inner(size) for d, size in enumerate(dims))


def _tidy(factors: Sequence[Factor]) -> Dim:
    """Drop factors of size 1, and join neighbours that are one, so that equal bindings compare equal."""
    tidy: list[Factor] = []
    for f in factors:
        if f.size == 1:
            continue
        if tidy:
            last = tidy[-1]
            both_inner = last.stride is None and f.stride is None
            if both_inner or (last.stride is not None and f.stride is not None and last.stride == f.stride * f.size):
                tidy[-1] = Factor(last.size * f.size, f.stride)
                continue
        tidy.append(f)
    return tuple(tidy)


def covers(binding: Binding, rows: int) -> bool:
    """Return whether the value has one set of elements for each of ``rows`` rows: its row factors are the digits of the
    row number, each once.
    """
    digits = sorted((f.stride, f.size) for dim in binding for f in dim if f.stride is not None)
    covered = 1
    for stride, size in digits:
        if stride != covered:
            return False
        covered *= size
    return covered == rows


def is_uniform(binding: Binding) -> bool:
    """Return whether all rows have the same value."""
    return all(f.stride is None for dim in binding for f in dim)


def inner_sizes(binding: Binding) -> tuple[int, ...]:
    """Return the sizes of the factors inside the row, major to minor."""
    return tuple(f.size for dim in binding for f in dim if f.stride is None)


def index_of(binding: Binding, row: Expr, position: Expr) -> tuple[Expr, ...]:
    """Return the value's index in row ``row`` at place ``position`` of its inner domain (row-major over
    ``inner_sizes``).
    """
    remaining = prod(inner_sizes(binding))
    index: list[Expr] = []
    for dim in binding:
        i: Expr = const(0)
        for f in dim:
            if f.stride is None:
                remaining //= f.size
                digit = (position // remaining) % f.size
            else:
                digit = (row // f.stride) % f.size
            i = i * f.size + digit
        index.append(i)
    return tuple(index)


def position_in(binding: Binding, row: Expr, index: Sequence[Expr]) -> Expr | None:
    """Return the inverse of ``index_of``: the place of ``index`` in the inner domain, or ``None`` where it may lie in
    another row.
    """
    position: Expr = const(0)
    for dim, i in zip(binding, index, strict=True):
        remaining = prod(f.size for f in dim)
        for f in dim:
            remaining //= f.size
            digit = (i // remaining) % f.size
            if f.stride is None:
                position = position * f.size + digit
            elif digit != (row // f.stride) % f.size:
                return None
    return position


def regroup(binding: Binding, dims: Sequence[int]) -> Binding | None:
    """Return the binding of the same elements in row-major order under other dimensions (reshape); ``None`` if a factor
    cannot be cut there.
    """
    pending = [f for dim in binding for f in dim][::-1]
    regrouped: list[Dim] = []
    for size in dims:
        factors: list[Factor] = []
        left = size
        while left > 1:
            if not pending:
                return None
            f = pending.pop()
            if left % f.size == 0:
                factors.append(f)
                left //= f.size
            elif f.size % left == 0:
                low = f.size // left
                factors.append(Factor(left, None if f.stride is None else f.stride * low))
                pending.append(Factor(low, f.stride))
                left = 1
            else:
                return None
        regrouped.append(_tidy(factors))
    return tuple(regrouped)


def _has_rows(dim: Dim) -> bool:
    return any(f.stride is not None for f in dim)


def _moved_inside(binding: Binding, dims: Sequence[int], others: Sequence[int]) -> Binding | None:
    """Return the binding where dimensions whose size differs, or whose elements move, must run inside the row."""
    moved: list[Dim] = []
    for dim, size, moves in zip(binding, dims, others, strict=True):
        if moves and _has_rows(dim):
            return None
        moved.append(inner(size) if moves else dim)
    return tuple(moved)


def _moved_dims(graph: Graph, node: Node, k: int) -> tuple[int, ...]:
    """Return, for operations that keep the rank, 1 for each dimension along which elements move, else 0."""
    a, rank = node.attributes, len(node.tensor.dims)
    match node.op:
        case "slice":
            operand = graph[node.operands[0]].tensor.dims
            return tuple(int(s != (0, size, 1)) for s, size in zip(a["slice"], operand, strict=True))
        case "pad":
            return tuple(int(p != (0, 0, 0)) for p in a["padding"])
        case "reverse" | "concatenate":
            return tuple(int(d in a["dimensions"]) for d in range(rank))
        case "dynamic-slice":
            operand = graph[node.operands[0]].tensor.dims
            return tuple(int(x != y) for x, y in zip(node.tensor.dims, operand, strict=True))
    return (0,) * rank


RANK_KEEPING_MOVES = frozenset({"slice", "pad", "reverse", "concatenate", "dynamic-slice"})


def to_operand(graph: Graph, node: Node, k: int, binding: Binding) -> Binding | None:
    """Return the binding of operand ``k`` that matches ``binding`` of the node; ``None`` where none does."""
    operand = graph[node.operands[k]]
    if operand.op == "sort" and node.op == "get-tuple-element":
        return binding
    if not isinstance(operand.type, TensorType):
        return None
    dims = operand.type.dims
    a = node.attributes
    match node.op:
        case "broadcast":
            return tuple(binding[d] for d in a.get("dimensions", ()))
        case "reshape":
            return regroup(binding, dims)
        case "transpose":
            permuted: list[Dim] = [()] * len(dims)
            for i, d in enumerate(a["dimensions"]):
                permuted[d] = binding[i]
            return tuple(permuted)
        case "reduce":
            if k >= len(node.operands) // 2:
                return None
            remaining = iter(binding)
            return tuple(inner(size) if d in a["dimensions"] else next(remaining) for d, size in enumerate(dims))
        case op if op in RANK_KEEPING_MOVES:
            if len(dims) != len(binding):
                return None
            return _moved_inside(binding, dims, _moved_dims(graph, node, k))
        case "reduce-window":
            return _scanned_inside(graph, node, k, binding)
        case "sort":
            return _sorted_inside(graph, node, binding)
        case "gather":
            return _gather_pairs(graph, node).to_operand(k, binding, dims)
        case "dot":
            at = _product_dims(graph, node, k)
            return tuple(inner(size) if r is None else binding[r] for r, size in zip(at, dims, strict=True))
        case _:
            return binding if dims == result_dims(graph, node) else None


def to_result(graph: Graph, node: Node, k: int, binding: Binding) -> Binding | None:
    """Return the binding of the node that matches ``binding`` of its operand ``k``; ``None`` where none does.

    A ``reduce`` over row factors loses them: its binding then covers fewer rows than there are.
    """
    a = node.attributes
    if node.op == "get-tuple-element":
        return binding
    dims = result_dims(graph, node)
    match node.op:
        case "broadcast":
            at = dict(zip(a.get("dimensions", ()), binding, strict=True))
            return tuple(at.get(d, inner(size)) for d, size in enumerate(dims))
        case "reshape":
            return regroup(binding, dims)
        case "transpose":
            return tuple(binding[d] for d in a["dimensions"])
        case "reduce":
            if k >= len(node.operands) // 2:
                return None
            return tuple(dim for d, dim in enumerate(binding) if d not in a["dimensions"])
        case op if op in RANK_KEEPING_MOVES:
            if len(dims) != len(binding):
                return None
            return _moved_inside(binding, dims, _moved_dims(graph, node, k))
        case "reduce-window":
            return _scanned_inside(graph, node, k, binding)
        case "sort":
            return _sorted_inside(graph, node, binding)
        case "gather":
            return _gather_pairs(graph, node).to_result(k, binding, dims)
        case "dot":
            remaining = {r: binding[d] for d, r in enumerate(_product_dims(graph, node, k)) if r is not None}
            return tuple(remaining.get(d, inner(size)) for d, size in enumerate(dims))
        case _:
            return binding if graph[node.operands[k]].tensor.dims == dims else None


def admits(graph: Graph, node: Node, binding: Binding) -> bool:
    """Return whether rows can compute their own parts of a node under this binding: what is sorted or scanned lies
    inside the row, and of a sort nothing else. Users of a node do not know that when they ask for its elements.
    """
    if node.op == "get-tuple-element":
        return admits(graph, graph[node.operands[0]], binding)
    if node.op == "sort":
        return _sorted_inside(graph, node, binding) is not None
    return scan_of(graph, node) is None or _scanned_inside(graph, node, 0, binding) is not None


def _scanned_inside(graph: Graph, node: Node, k: int, binding: Binding) -> Binding | None:
    """Return the binding of a scan's result or operand that matches the other's: the same, with what is scanned
    inside.
    """
    scan = scan_of(graph, node)
    if scan is None or k or _has_rows(binding[scan.dimension]):
        return None
    return binding


def _sorted_inside(graph: Graph, node: Node, binding: Binding) -> Binding | None:
    """Return the binding of a sort's results and operands alike: what is sorted is all that is inside the row."""
    sort = sort_of(graph, node)
    assert sort is not None
    alone = all((not inner_sizes((dim,))) == (d != sort.dimension) for d, dim in enumerate(binding))
    return binding if alone and not _has_rows(binding[sort.dimension]) else None


def _product_dims(graph: Graph, node: Node, k: int) -> tuple[int | None, ...]:
    """Return, for each dimension of operand ``k`` of a ``dot``, the result's dimension that it is; ``None`` if it is
    contracted.
    """
    a = node.attributes
    batch = [tuple(a.get(f"{side}_batch_dims", ())) for side in ("lhs", "rhs")]
    contracted = [tuple(a.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")]
    ranks = [len(graph[o].tensor.dims) for o in node.operands[:2]]
    free = [[d for d in range(ranks[s]) if d not in batch[s] + contracted[s]] for s in (0, 1)]
    first = len(batch[k]) + (len(free[0]) if k else 0)
    at = {d: r for r, d in enumerate(batch[k])} | {d: first + r for r, d in enumerate(free[k])}
    return tuple(at.get(d) for d in range(ranks[k]))


def result_dims(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the dimensions of a node's result; of a variadic reduce, those that all its results share."""
    if isinstance(node.type, TensorType):
        return node.type.dims
    first = node.type.elements[0]  # type: ignore[union-attr]
    return first.dims if isinstance(first, TensorType) else ()


class _GatherPairs(Struct, frozen=True):
    """Which dimensions of a gather's operands and result have equal indices: (operand, result) and (indices,
    result).
    """

    operand: tuple[tuple[int, int], ...]
    indices: tuple[tuple[int, int], ...]

    def to_operand(self, k: int, binding: Binding, dims: Sequence[int]) -> Binding | None:
        pairs = dict(self.operand if k == 0 else self.indices)
        if any(_has_rows(dim) and d not in pairs.values() for d, dim in enumerate(binding)):
            if k == 0:
                return None
        return tuple(binding[pairs[d]] if d in pairs else inner(size) for d, size in enumerate(dims))

    def to_result(self, k: int, binding: Binding, dims: Sequence[int]) -> Binding | None:
        pairs = {r: o for o, r in (self.operand if k == 0 else self.indices)}
        if any(_has_rows(dim) and d not in pairs.values() for d, dim in enumerate(binding)):
            return None
        return tuple(binding[pairs[d]] if d in pairs else inner(size) for d, size in enumerate(dims))


def _gather_pairs(graph: Graph, node: Node) -> _GatherPairs:
    operand, indices = (graph[i].tensor for i in node.operands)
    shape = gather_shape(node, operand, indices)
    vector_dim = node.attributes["index_vector_dim"]
    batch_of_indices = [d for d in range(len(indices.dims)) if d != vector_dim]
    pairs = [
        (d, shape.offset_dims[k])
        for k, d in enumerate(shape.window_dims)
        if d not in shape.start_index_map and shape.slice_sizes[d] == operand.dims[d]
    ]
    for o, i in zip(shape.operand_batching_dims, shape.start_indices_batching_dims, strict=True):
        pairs.append((o, shape.batch_dims[batch_of_indices.index(i)]))
    # A start component that is an iota along a batch dimension selects the operand's own row.
    probes = [var(f"b{k}", indices.dims[d]) for k, d in enumerate(batch_of_indices)]
    for component, d in enumerate(shape.start_index_map):
        at = list(probes)
        if vector_dim < len(indices.dims):
            at.insert(vector_dim, const(component))
        value = value_of(graph, graph[node.operands[1]], at)
        if value is None or value.is_const or value not in probes or shape.slice_sizes[d] != 1:
            continue
        k = probes.index(value)
        if operand.dims[d] == indices.dims[batch_of_indices[k]]:
            pairs.append((d, shape.batch_dims[k]))
    return _GatherPairs(tuple(pairs), tuple(zip(batch_of_indices, shape.batch_dims, strict=True)))


def elements_of(binding: Binding, rows: int) -> tuple[Index, ...]:
    """Return the index of each of a value's places in a row."""
    row = row_index(rows)
    return tuple(index_of(binding, row, const(p)) for p in range(prod(inner_sizes(binding))))
