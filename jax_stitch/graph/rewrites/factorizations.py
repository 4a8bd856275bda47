"""Expansion of factorizations and solves of small matrices into elementwise operations and reductions.

LAPACK, cuSOLVER and cuBLAS take a call for each, and no kernel can hold a call. Written out column by column, as
textbooks have it (Golub and Van Loan, Matrix Computations, 4th edition, 3.1, 3.4 and 4.2), they are part of what is
around them: a whole Kalman filter is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from ..builder import Builder, copied, with_called
from ..matrices import Matrices
from ..model import Graph, Node, TensorType, TupleType

LARGEST, MOST_NODES = 16, 1500
"""The most rows and columns of a matrix, and the most nodes that a loop's are written out to: a column is some of them,
and the time of planning goes with them.
"""


class Solve(Struct, frozen=True):
    """The triangular system ``op(a) x = b``, or ``x op(a) = b`` where not ``left``; ``op`` transposes or does not."""

    left: bool
    lower: bool
    transposed: bool
    unit: bool


Expansion = Callable[[Matrices, Sequence[int]], tuple[int, ...]]
"""A function that adds the operations of a node, given the ids of its operands, and returns the id of each result."""


def expansion_of(graph: Graph, node: Node) -> Expansion | None:
    """Return how a factorization or solve of small matrices is written out; None for other nodes."""
    target = library_call(node)
    if target is None or not _is_small(graph, node):
        return None
    config = node.attributes.get("backend_config", {})
    match target:
        case "solve":
            form = _solve(node, config)
            return None if form is None else lambda m, values: (solved(m, values[0], values[1], form),)
        case "cholesky":
            if not config.keys() & {"lower", "uplo"}:
                return None
            lower = bool(config["lower"]) if "lower" in config else config["uplo"] == ord("L")
            return lambda m, values: cholesky(m, values[0], lower=lower)
        case "reflections":
            return lambda m, values: reflections(m, values[0])
        case "reflected":
            return lambda m, values: (reflected(m, values[0], values[1]),)
        case "lu":
            return lambda m, values: lu(m, values[0])
        case _:
            size = node.tensor.dims[-1]
            return lambda m, values: (permutation(m, values[0], size),)


_TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "cholesky": "lapack_spotrf_ffi lapack_dpotrf_ffi cusolver_potrf_ffi",
        "solve": "lapack_strsm_ffi lapack_dtrsm_ffi",
        "lu": "lapack_sgetrf_ffi lapack_dgetrf_ffi cusolver_getrf_ffi",
        "permutation": "cu_lu_pivots_to_permutation",
        "reflections": "lapack_sgeqrf_ffi lapack_dgeqrf_ffi cusolver_geqrf_ffi",
        "reflected": "lapack_sorgqr_ffi lapack_dorgqr_ffi cusolver_orgqr_ffi",
    }
)
_KINDS = MappingProxyType({target: kind for kind, targets in _TARGETS.items() for target in targets.split()})


CALLED = frozenset({"custom-call", "triangular-solve"})
"""Operations of which some are factorizations or solves."""


def library_call(node: Node) -> str | None:
    """Return which factorization or solve a node is, as ``_TARGETS`` names it; None for others."""
    if node.op == "triangular-solve":
        return "solve"
    return _KINDS.get(node.attributes["custom_call_target"]) if node.op == "custom-call" else None


def _is_small(graph: Graph, node: Node) -> bool:
    """Return whether all values are arrays of real numbers, of matrices that are small, read one by one."""
    is_tuple = isinstance(node.type, TupleType)
    if is_tuple and (
        node.id in graph.result_set or any(graph[u].op != "get-tuple-element" for u in graph.users[node.id])
    ):
        return False
    types = [graph[o].type for o in node.operands]
    types += node.type.elements if isinstance(node.type, TupleType) else [node.type]
    if not all(isinstance(t, TensorType) and t.size and t.dtype in ("f32", "f64", "s32") for t in types):
        return False
    first = graph[node.operands[0]].tensor
    sides = node.tensor.dims[-1:] if first.dtype == "s32" else first.dims[-2:]
    return max(sides) <= LARGEST


def _solve(node: Node, config: Mapping[str, Any]) -> Solve | None:
    """Return the form of a solve: as HLO's attributes say, or as LAPACK's letters."""
    if node.op == "triangular-solve":
        said, transposed = node.attributes, str(node.attributes.get("transpose_a", "NO_TRANSPOSE"))
        left, lower, unit = (bool(said.get(key)) for key in ("left_side", "lower", "unit_diagonal"))
        return Solve(left, lower, transposed != "NO_TRANSPOSE", unit)
    keys = ("side", "uplo", "trans_x", "diag")
    if len(node.operands) != 2 or not config.keys() >= set(keys):
        return None
    side, uplo, trans, diagonal = (chr(int(config[key])) for key in keys)
    return Solve(side == "L", uplo == "L", trans != "N", diagonal == "U")


def solved(m: Matrices, a: int, b: int, form: Solve) -> int:
    """Add the solution ``x`` of a triangular system, by substitution: row by row, or column by column of ``x`` on the
    other side.
    """
    size, axis = m.dims(a)[-1], -2 if form.left else -1
    forward = form.lower != form.transposed if form.left else form.lower == form.transposed
    by_column = form.transposed != form.left
    found: dict[int, int] = {}
    for j in range(size) if forward else reversed(range(size)):
        here = m.line(b, j, axis)
        if not form.unit:
            here = m.op("divide", here, m.spread(m.element(a, j, j), m.dims(here)))
        found[j] = here
        if len(found) < size:
            line = m.line(a, j, -1 if by_column else -2)
            b = m.op("subtract", b, m.outer(line, here) if form.left else m.outer(here, line))
    return m.joined([found[j] for j in range(size)], axis)


def cholesky(m: Matrices, a: int, *, lower: bool) -> tuple[int, int]:
    """Add the Cholesky factor, with the other triangle as it is in ``a``, and LAPACK's number of the first row whose
    pivot is not positive, or 0.
    """
    size, left = m.dims(a)[-1], a
    lines, roots, failed = [], [], m.number(0, "s32", m.batch)
    none, zero = failed, m.number(0, m.dtype(a), m.batch)
    for j in range(size):
        pivot = m.element(left, j, j)
        is_first = m.op("and", m.compare("EQ", failed, none), m.compare("LE", pivot, zero))
        failed = m.op("select", is_first, m.number(j + 1, "s32", m.batch), failed)
        line = m.line(left, j, -1 if lower else -2)
        roots.append(m.op("sqrt", pivot))
        line = m.op("divide", line, m.spread(roots[-1], m.dims(line)))
        lines.append(line)
        if j < size - 1:
            left = m.op("subtract", left, m.outer(line, line))
    factor = m.joined(lines, -1 if lower else -2)
    rows, columns = m.places(a, -2), m.places(a, -1)
    diagonal = m.spread_line(m.joined(roots, -1), a, -2)
    factor = m.op("select", m.compare("GT" if lower else "LT", rows, columns), factor, a)
    return m.op("select", m.compare("EQ", rows, columns), diagonal, factor), failed


def lu(m: Matrices, a: int) -> tuple[int, int, int]:
    """Add both factors in one matrix, the row that each was exchanged with, counted from 1, and LAPACK's number of the
    first pivot that is 0, or 0.
    """
    *_, height, width = m.dims(a)
    rows, columns, numbers = m.places(a, -2), m.places(a, -1), m.counted(height)
    pivots, failed = [], m.number(0, "s32", m.batch)
    none, zero = failed, m.number(0, m.dtype(a), m.batch)
    for j in range(min(height, width)):
        chosen = m.number(j, "s32", m.batch)
        if j < height - 1:
            chosen = _largest(m, m.line(a, j, -1), numbers, j)
            here, other = m.compare("EQ", rows, m.number(j, "s32", m.dims(a))), m.spread(chosen, m.dims(a))
            there = m.compare("EQ", rows, other)
            picked, first = m.picked(there, a, -2), m.line(a, j, -2)
            a = m.op("select", there, m.spread_line(first, a, -2), a)
            a = m.op("select", here, m.spread_line(picked, a, -2), a)
        pivot, column, row = m.element(a, j, j), m.line(a, j, -1), m.line(a, j, -2)
        is_zero = m.compare("EQ", pivot, zero)
        is_first = m.op("and", m.compare("EQ", failed, none), is_zero)
        failed = m.op("select", is_first, m.number(j + 1, "s32", m.batch), failed)
        pivots.append(m.op("add", chosen, m.number(1, "s32", m.batch)))
        if j < height - 1:
            scaled = m.op("divide", column, m.spread(pivot, m.dims(column)))
            scaled = m.op("select", m.spread(is_zero, m.dims(column)), column, scaled)
            below = m.compare("GT", rows, m.number(j, "s32", m.dims(a)))
            at = m.number(j, "s32", m.dims(a))
            updated = m.op("subtract", a, m.outer(scaled, row))
            updated = m.op("select", m.compare("GT", columns, at), updated, a)
            updated = m.op("select", m.compare("EQ", columns, at), m.spread_line(scaled, a, -1), updated)
            a = m.op("select", below, updated, a)
    return a, m.joined(pivots, -1), failed


def _largest(m: Matrices, column: int, numbers: int, first: int) -> int:
    """Add the number of the first element from ``first`` on that no other exceeds in size; of NaNs the first one."""
    dims = m.dims(column)
    size = m.op(
        "select",
        m.compare("GE", numbers, m.number(first, "s32", dims)),
        m.op("abs", column),
        m.number(-1, m.dtype(column), dims),
    )
    best = m.reduced("maximum", size, -1, -np.inf)
    found = m.op("or", m.compare("EQ", size, m.spread(best, dims)), m.compare("NE", size, size))
    last = dims[-1] - 1
    return m.reduced("minimum", m.op("select", found, numbers, m.number(last, "s32", dims)), -1, last)


def permutation(m: Matrices, pivots: int, size: int) -> int:
    """Add the order of rows that exchanges have made, each with the row that ``pivots`` says, counted from 0."""
    order = numbers = m.counted(size)
    for j in range(m.dims(pivots)[-1]):
        at, other = m.number(j, "s32", m.dims(order)), m.spread(m.line(pivots, j, -1), m.dims(order))
        there = m.compare("EQ", numbers, other)
        picked, first = m.picked(there, order, -1), m.line(order, j, -1)
        order = m.op("select", there, m.spread(first, m.dims(order)), order)
        order = m.op("select", m.compare("EQ", numbers, at), m.spread(picked, m.dims(order)), order)
    return order


def reflections(m: Matrices, a: int) -> tuple[int, int]:
    """Add the QR factorization by Householder's reflections, as LAPACK keeps it: ``r`` on and above the diagonal, below
    it the vectors of the reflections without their first element, which is 1; and the factor of each.
    """
    *_, height, width = m.dims(a)
    rows, columns, numbers = m.places(a, -2), m.places(a, -1), m.counted(height)
    zero, one, factors = m.number(0, m.dtype(a), m.batch), m.number(1, m.dtype(a), m.batch), list[int]()
    for j in range(min(height, width)):
        column = m.line(a, j, -1)
        dims, first = m.dims(column), m.element(a, j, j)
        nothing, here = m.number(0, m.dtype(a), dims), m.number(j, "s32", dims)
        below = m.op("select", m.compare("GT", numbers, here), column, nothing)
        # Scaled by its largest element: no square overflows.
        size = m.op("maximum", m.reduced("maximum", m.op("abs", below), -1, -np.inf), m.op("abs", first))
        size = m.op("select", m.compare("GT", size, zero), size, one)
        scaled, start = m.op("divide", below, m.spread(size, dims)), m.op("divide", first, size)
        rest = m.reduced("add", m.op("multiply", scaled, scaled), -1, 0)
        length = m.op("sqrt", m.op("add", m.op("multiply", start, start), rest))
        is_done = m.compare("EQ", rest, zero)
        end = m.op("select", m.compare("GE", start, zero), m.op("negate", length), length)
        factor = m.op("select", is_done, zero, m.op("divide", m.op("subtract", end, start), end))
        divisor = m.op("select", is_done, one, m.op("subtract", start, end))
        vector = m.op("divide", scaled, m.spread(divisor, dims))
        factors.append(factor)
        kept = m.op("select", is_done, first, m.op("multiply", end, size))
        whole = m.op("select", m.compare("EQ", numbers, here), m.number(1, m.dtype(a), dims), vector)
        reflected_a = _reflected(m, a, whole, factor)
        at = m.number(j, "s32", m.dims(a))
        own = m.op("select", m.compare("EQ", rows, at), m.spread(kept, m.dims(a)), m.spread_line(vector, a, -1))
        own = m.op("select", m.compare("LT", rows, at), a, own)
        a = m.op(
            "select", m.compare("GT", columns, at), reflected_a, m.op("select", m.compare("EQ", columns, at), own, a)
        )
    return a, m.joined(factors, -1)


def reflected(m: Matrices, a: int, factors: int) -> int:
    """Add the first columns of the product of reflections, as many as ``a`` has, whose columns are their vectors."""
    height, count = m.dims(a)[-2], m.dims(factors)[-1]
    dtype, numbers = m.dtype(a), m.counted(height)
    is_diagonal = m.compare("EQ", m.places(a, -2), m.places(a, -1))
    q = m.op("select", is_diagonal, m.number(1, dtype, m.dims(a)), m.number(0, dtype, m.dims(a)))
    for j in reversed(range(count)):
        column = m.line(a, j, -1)
        here = m.number(j, "s32", m.dims(column))
        below = m.op("select", m.compare("GT", numbers, here), column, m.number(0, dtype, m.dims(column)))
        vector = m.op("select", m.compare("EQ", numbers, here), m.number(1, dtype, m.dims(column)), below)
        q = _reflected(m, q, vector, m.line(factors, j, -1))
    return q


def _reflected(m: Matrices, a: int, vector: int, factor: int) -> int:
    """Add ``a - factor * vector (vector^T a)``."""
    product = m.reduced("add", m.op("multiply", m.spread_line(vector, a, -1), a), -2, 0)
    scaled = m.op("multiply", vector, m.spread(factor, m.dims(vector)))
    return m.op("subtract", a, m.outer(scaled, product))


def with_expansions(graph: Graph) -> Graph:
    """Return the graph with each factorization and solve of small matrices written out, in the graphs that it calls
    too; as it is where that takes too many nodes.
    """
    return _expanded(graph) if _growth(graph) <= MOST_NODES else graph


def _growth(graph: Graph) -> int:
    own = sum(factorization_growth(graph, node) or 0 for node in graph.nodes)
    return own + sum(_growth(called) for node in graph.nodes for called in node.graphs.values())


def _expanded(graph: Graph) -> Graph:
    for node in graph.nodes:
        for name, called in node.graphs.items():
            graph = with_called(graph, graph[node.id], name, _expanded(called))
    found = {n.id: e for n in graph.nodes if (e := expansion_of(graph, n)) is not None}
    if not found:
        return graph
    results: dict[int, tuple[int, ...]] = {}

    def instead(builder: Builder, node: Node, ids: dict[int, int]) -> int | None:
        if node.op == "get-tuple-element" and node.operands[0] in found:
            return results[node.operands[0]][node.attributes["index"]]
        if node.id not in found:
            return None
        operands = [ids[o] for o in node.operands]
        results[node.id] = found[node.id](Matrices(builder, node, operands[0]), operands)
        return results[node.id][0]

    return copied(graph, instead)


def factorization_growth(graph: Graph, node: Node) -> int | None:
    """Return about how many nodes a factorization or solve takes that is written out; None for other nodes."""
    if expansion_of(graph, node) is None:
        return None
    return graph[node.operands[0]].tensor.dims[-1] * _NODES[str(library_call(node))]


_NODES = MappingProxyType(
    {"cholesky": 18, "solve": 10, "lu": 50, "permutation": 15, "reflections": 50, "reflected": 25}
)
"""Nodes for each column."""
