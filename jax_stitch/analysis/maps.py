"""For each HLO operation that moves or maps elements: which element of each operand one element of the result reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, product
from math import prod
from typing import Any

from msgspec import Struct

from jax_stitch.analysis.results import Results
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices.expr import Expr, const, delinearize, linearize, var, within

Index = tuple[Expr, ...]


class Guard(Struct, frozen=True):
    """``low <= value <= high`` and ``value % step == 0``: where it holds, the operand is read."""

    value: Expr
    low: int
    high: int
    step: int = 1

    @property
    def always(self) -> bool:
        return self.step == 1 and self.low <= self.value.low and self.value.high <= self.high

    @property
    def never(self) -> bool:
        return self.value.high < self.low or self.value.low > self.high


class Read(Struct, frozen=True):
    """Element ``index`` of operand number ``operand``, read only where every guard holds.

    ``starts`` lists the variables in ``index`` that stand for data: the variable's name, and the operand number and
    index of the element that holds its value, which is to be clamped into the variable's range.
    """

    operand: int
    index: Index
    guards: tuple[Guard, ...] = ()
    starts: tuple[tuple[str, int, Index], ...] = ()


MOVES = frozenset(
    {"broadcast", "concatenate", "dynamic-slice", "gather", "pad", "reshape", "reverse", "slice", "transpose"},
)
"""Operations that only move elements; every other operation given to ``reads`` is elementwise."""

_STATIC_MOVES = MOVES - {"dynamic-slice", "gather"}
"""Moves whose places do not depend on data."""


def reads(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    """Return the operand elements that element ``index`` of ``node`` reads, for elementwise operations and
    ``MOVES``.
    """
    match node.op:
        case "broadcast":
            return (Read(0, tuple(index[d] for d in node.attributes.get("dimensions", ()))),)
        case "reshape":
            operand = graph[node.operands[0]].tensor
            return (Read(0, delinearize(linearize(index, node.tensor.dims), operand.dims)),)
        case "transpose":
            permutation = node.attributes["dimensions"]
            source: list[Expr] = [const(0)] * len(index)
            for i, d in enumerate(permutation):
                source[d] = index[i]
            return (Read(0, tuple(source)),)
        case "slice":
            bounds = node.attributes["slice"]
            return (Read(0, tuple(i * step + start for i, (start, _, step) in zip(index, bounds, strict=True))),)
        case "reverse":
            flipped = node.attributes["dimensions"]
            dims = node.tensor.dims
            return (Read(0, tuple(-i + (dims[d] - 1) if d in flipped else i for d, i in enumerate(index))),)
        case "concatenate":
            return _concatenate(graph, node, index)
        case "pad":
            return _pad(graph, node, index)
        case "dynamic-slice":
            return _dynamic_slice(graph, node, index)
        case "dynamic-update-slice":
            return _dynamic_update_slice(graph, node, index)
        case "gather":
            return _gather(graph, node, index)
        case _:
            return tuple(
                Read(k, index if graph[operand].tensor.dims == node.tensor.dims else ())
                for k, operand in enumerate(node.operands)
            )


def _concatenate(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    (axis,) = node.attributes["dimensions"]
    operand_reads: list[Read] = []
    start = 0
    for k, operand in enumerate(node.operands):
        size = graph[operand].tensor.dims[axis]
        guard = Guard(index[axis], start, start + size - 1)
        shifted = (*index[:axis], within(index[axis] - start, 0, max(size - 1, 0)), *index[axis + 1 :])
        if size and not guard.never:
            operand_reads.append(Read(k, shifted, () if guard.always else (guard,)))
        start += size
    return tuple(operand_reads)


def _pad(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    operand = graph[node.operands[0]].tensor
    guards: list[Guard] = []
    source: list[Expr] = []
    for i, size, (low, _, interior) in zip(index, operand.dims, node.attributes["padding"], strict=True):
        step = interior + 1
        guard = Guard(i - low, 0, (size - 1) * step, step)
        if guard.never or size == 0:
            return (Read(1, ()),)
        if not guard.always:
            guards.append(guard)
        source.append(within((i - low) // step, 0, size - 1))
    value = Read(0, tuple(source), tuple(guards))
    return (value, Read(1, ())) if guards else (value,)


def _start(
    graph: Graph, node: Node, name: str, source: tuple[int, Index], high: int
) -> tuple[Expr, tuple[tuple[str, int, Index], ...]]:
    """Return a start index that is data, clamped to ``[0, high]``: an expression where it is known, else a variable."""
    operand, at = source
    known = value_of(graph, graph[node.operands[operand]], at)
    if known is not None and known.low >= 0 and known.high <= high:
        return known, ()
    if known is not None and known.is_const:
        return const(min(max(known.offset, 0), high)), ()
    symbol = f"{name}[{', '.join(map(str, at))}]"
    start = var(symbol, low=0, high=high)
    return start, ((symbol, operand, at),) if not start.is_const else ()


def _dynamic_slice(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    dims = graph[node.operands[0]].tensor.dims
    source: list[Expr] = []
    starts: tuple[tuple[str, int, Index], ...] = ()
    for d, (i, size) in enumerate(zip(index, node.tensor.dims, strict=True)):
        start, data = _start(graph, node, f"start{node.id}_{d}", (1 + d, ()), dims[d] - size)
        source.append(start + i)
        starts += data
    return (Read(0, tuple(source), (), starts),)


def updated_place(graph: Graph, node: Node, index: Index) -> Read:
    """Return where element ``index`` of its update lies in what a ``dynamic-update-slice`` makes, as a read of it."""
    place: list[Expr] = []
    starts: tuple[tuple[str, int, Index], ...] = ()
    sizes = graph[node.operands[1]].tensor.dims
    for d, (i, size, whole) in enumerate(zip(index, sizes, node.tensor.dims, strict=True)):
        start, data = _start(graph, node, f"start{node.id}_{d}", (2 + d, ()), whole - size)
        place.append(start + i)
        starts += data
    return Read(0, tuple(place), (), starts)


def _dynamic_update_slice(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    update = graph[node.operands[1]].tensor.dims
    source: list[Expr] = []
    guards: list[Guard] = []
    starts: tuple[tuple[str, int, Index], ...] = ()
    for d, (i, size, whole) in enumerate(zip(index, update, node.tensor.dims, strict=True)):
        start, data = _start(graph, node, f"start{node.id}_{d}", (2 + d, ()), whole - size)
        guard = Guard(i - start, 0, size - 1)
        if guard.never:
            return (Read(0, index),)
        if not guard.always:
            guards.append(guard)
        source.append(within(i - start, 0, size - 1))
        starts += data
    value = Read(1, tuple(source), tuple(guards), starts)
    return (value, Read(0, index)) if guards else (value,)


def _gather(graph: Graph, node: Node, index: Index) -> tuple[Read, ...]:
    a = node.attributes
    operand, indices = (graph[i].tensor for i in node.operands)
    shape = gather_shape(node, operand, indices)
    batch = [index[d] for d in shape.batch_dims]
    offsets = {d: index[shape.offset_dims[k]] for k, d in enumerate(shape.window_dims)}
    vector_dim = a["index_vector_dim"]
    source: list[Expr] = []
    starts: tuple[tuple[str, int, Index], ...] = ()
    for d, size in enumerate(operand.dims):
        here = offsets.get(d, const(0))
        if d in shape.start_index_map:
            component = const(shape.start_index_map.index(d))
            at = (
                tuple(batch)
                if vector_dim == len(indices.dims)
                else (*batch[:vector_dim], component, *batch[vector_dim:])
            )
            start, data = _start(graph, node, f"start{node.id}_{d}", (1, at), size - shape.slice_sizes[d])
            here = here + start
            starts += data
        elif d in shape.operand_batching_dims:
            position = shape.start_indices_batching_dims[shape.operand_batching_dims.index(d)]
            here = batch[position if position < vector_dim else position - 1]
        source.append(here)
    return (Read(0, tuple(source), (), starts),)


class GatherShape(Struct, frozen=True):
    """A gather's dimension numbers with their defaults filled in; see XLA's operation semantics, "Gather"."""

    batch_dims: tuple[int, ...]
    offset_dims: tuple[int, ...]
    window_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    slice_sizes: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    start_indices_batching_dims: tuple[int, ...]


def gather_shape(node: Node, operand: TensorType, indices: TensorType) -> GatherShape:
    a = node.attributes
    offset_dims = tuple(a.get("offset_dims", ()))
    batching = tuple(a.get("operand_batching_dims", ()))
    gone = {*a.get("collapsed_slice_dims", ()), *batching}
    return GatherShape(
        tuple(d for d in range(len(node.tensor.dims)) if d not in offset_dims),
        offset_dims,
        tuple(d for d in range(len(operand.dims)) if d not in gone),
        tuple(a.get("start_index_map", ())),
        tuple(a["slice_sizes"]),
        batching,
        tuple(a.get("start_indices_batching_dims", ())),
    )


STEP = "loop-step"
"""The counter of a loop inside its body: ``start + by * step``, with ``step`` (or the variable that attribute ``name``
says) in ``[0, trips)``.
"""


def known_choice(graph: Graph, node: Node, index: Sequence[Expr]) -> bool | None:
    """Return a boolean element where the ranges of index expressions tell it, else None: comparisons of them, what is
    combined of these, and "and" or "or" of a few.
    """
    match node.op:
        case "constant":
            literal = _element(node, index)
            return None if literal is None else bool(literal)
        case "compare":
            return _known_comparison(graph, node, index)
        case "not":
            choice = known_choice(graph, graph[node.operands[0]], index)
            return None if choice is None else not choice
        case "and" | "or":
            return _combined(node.op, (known_choice(graph, graph[o], index) for o in node.operands))
        case "reduce":
            return _known_reduction(graph, node, index)
        case op if op in _STATIC_MOVES:
            read = _only_read(graph, node, index)
            return None if read is None else known_choice(graph, graph[node.operands[read.operand]], read.index)
    return None


def _known_comparison(graph: Graph, node: Node, index: Sequence[Expr]) -> bool | None:
    left, right = (value_of(graph, graph[o], index) for o in node.operands)
    if left is None or right is None:
        return None
    gap = left - right
    match node.attributes["direction"]:
        case "LT":
            return True if gap.high < 0 else (False if gap.low >= 0 else None)
        case "GE":
            return True if gap.low >= 0 else (False if gap.high < 0 else None)
        case "GT":
            return True if gap.low > 0 else (False if gap.high <= 0 else None)
        case "LE":
            return True if gap.high <= 0 else (False if gap.low > 0 else None)
        case "EQ" | "NE" as direction:
            equal = True if gap == const(0) else (False if gap.low > 0 or gap.high < 0 else None)
            return equal if direction == "EQ" or equal is None else not equal
    return None


def _combined(op: str, choices: Iterable[bool | None]) -> bool | None:
    """Return "and" or "or" of outcomes, of which one that decides is enough."""
    decides, unknown = op == "or", False
    for choice in choices:
        if choice is decides:
            return decides
        unknown = unknown or choice is None
    return None if unknown else not decides


_FEW = 16
"""Elements that are looked at one by one: an index vector has as many as an array has dimensions."""


def _known_reduction(graph: Graph, node: Node, index: Sequence[Expr]) -> bool | None:
    """Return "and" or "or" of the elements along the reduced dimensions, where these are few."""
    combiner = node.graphs["to_apply"]
    op = combiner[combiner.results[0]].op
    if len(node.operands) != 2 or op not in ("and", "or") or len(combiner.nodes) != 3:
        return None
    source, initial = (graph[o] for o in node.operands)
    dims, reduced = source.tensor.dims, node.attributes["dimensions"]
    if prod(dims[d] for d in reduced) > _FEW:
        return None
    kept = iter(index)
    ranges = [map(const, range(n)) if d in reduced else (next(kept),) for d, n in enumerate(dims)]
    elements = (known_choice(graph, source, place) for place in product(*ranges))
    return _combined(op, chain((known_choice(graph, initial, ()),), elements))


def _element(node: Node, index: Sequence[Expr]) -> Any:
    """Return an element of a constant, or None where it is not known which one that is."""
    assert node.literal is not None
    if any(not i.is_const for i in index):
        return None
    return node.literal[tuple(i.offset for i in index)]


def _only_read(graph: Graph, node: Node, index: Sequence[Expr]) -> Read | None:
    """Return the one element that a move reads, or None where it depends on the index which operand that is of."""
    first, *others = reads(graph, node, tuple(index))
    return None if first.guards or others else first


def value_of(graph: Graph, node: Node, index: Sequence[Expr]) -> Expr | None:
    """Return the value of an integer element as an index expression, or None where it is not one.

    Iotas, counters and constants are, and what is added up of them or moved about. Arithmetic on expressions does not
    wrap and that of the program does, so a value that may leave the range of its type is none: this is the one place
    that checks it.
    """
    if not isinstance(node.type, TensorType) or not node.type.holds(0, 0):
        return None
    found, key = _VALUES.of(graph), (node.id, tuple(index))
    if key not in found:
        value = _value_of(graph, node, index)
        found[key] = value if value is not None and node.type.holds(value.low, value.high) else None
    return found[key]


_VALUES: Results[tuple[int, Index], Expr | None] = Results()


def _value_of(graph: Graph, node: Node, index: Sequence[Expr]) -> Expr | None:
    match node.op:
        case "iota":
            return index[node.attributes["iota_dimension"]]
        case "constant":
            literal = _element(node, index)
            return None if literal is None else const(int(literal))
        case op if op == STEP:
            a = node.attributes
            return var(a.get("name", "step"), a["trips"]) * a["by"] + a["start"]
        case "add" | "subtract" | "maximum" | "minimum" | "multiply" | "divide" | "remainder":
            left, right = (value_of(graph, graph[o], index) for o in node.operands)
            return None if left is None or right is None else _arithmetic(node.op, left, right)
        case "clamp":
            low, value, high = (value_of(graph, graph[o], _of_operand(graph, o, index)) for o in node.operands)
            if low is None or value is None or high is None:
                return None
            raised = _arithmetic("maximum", value, low)
            return None if raised is None else _arithmetic("minimum", raised, high)
        case "select":
            choice = known_choice(graph, graph[node.operands[0]], _of_operand(graph, node.operands[0], index))
            return None if choice is None else value_of(graph, graph[node.operands[1 if choice else 2]], index)
        case "convert":
            return value_of(graph, graph[node.operands[0]], index)
        case op if op in _STATIC_MOVES:
            read = _only_read(graph, node, index)
            return None if read is None else value_of(graph, graph[node.operands[read.operand]], read.index)
    return None


def _of_operand(graph: Graph, operand: int, index: Sequence[Expr]) -> Sequence[Expr]:
    """Return the index of an operand of an elementwise operation, which may be a scalar beside arrays."""
    return index if graph[operand].tensor.dims else ()


def _arithmetic(op: str, left: Expr, right: Expr) -> Expr | None:
    if op == "add":
        return left + right
    if op == "multiply":
        return left * right.offset if right.is_const else right * left.offset if left.is_const else None
    if op in ("divide", "remainder"):  # They round towards zero.
        positive = right.is_const and right.offset > 0 and left.low >= 0
        return None if not positive else left // right.offset if op == "divide" else left % right.offset
    gap = left - right
    if op == "subtract":
        return gap
    if gap.low < 0 < gap.high:
        return None
    return left if (op == "maximum") == (gap.low >= 0) else right
