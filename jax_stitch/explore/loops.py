"""Loops whose body is local to each row of the carried values: a whole loop becomes one kernel.

Where every iteration computes a row of the carry from that row alone (an environment of a batch, a chain, a
trajectory), no value crosses threads, and the loop can run inside the thread that has the row, its carry in registers.
Sliced inputs are read in place, stacked outputs are written in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

import numpy as np

from jax_stitch.explore.binding import Binding, covers, index_of, inner, inner_sizes, position_in, rows_of
from jax_stitch.explore.contraction import contracted, is_contraction
from jax_stitch.explore.locality import row_index
from jax_stitch.explore.pattern import Pattern
from jax_stitch.explore.region import bind
from jax_stitch.explore.support import is_free, reason_unsupported
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.indexing import Expr, const, reads
from jax_stitch.indexing.maps import STEP, Index, value_of

MAX_PLACES = 64
"""Elements of one carried value per row: they are registers."""

MAX_ELEMENTS = 6000
"""Elements computed per row and iteration: the body is written out in full."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value carried from one iteration to the next: its parameter and next value in the body, and outside what it
    starts from.
    """

    parameter: int
    next: int
    initial: int
    result: int | None
    """What outside reads the last value, if anything does."""
    binding: Binding


@dataclass(frozen=True, slots=True)
class Stacked:
    """An output that every iteration writes a slice of: the slice in the body, where it starts, and the whole array
    outside.
    """

    update: int
    starts: Index
    result: int
    binding: Binding


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop that is local to each of ``rows`` rows, run ``trips`` times, or (where that is ``None``) while ``goes_on``
    holds for the row.

    ``body`` is the loop's body with counters in closed form; ``arrays`` are those of its parameters that no iteration
    changes, and what they are outside.
    """

    body: Graph
    trips: int | None
    rows: int
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]
    arrays: Mapping[int, int]
    goes_on: tuple[int, Binding] | None = None
    """The condition as a value of the body, where the number of trips is not known, and its binding."""


def loop_patterns(graph: Graph) -> list[Pattern]:
    """A pattern for every loop of ``graph`` that is local to the rows of its carried values."""
    found: list[Pattern] = []
    for node in graph.nodes:
        loop = local_loop(graph, node) if node.op == "while" else None
        if loop is None:
            continue
        inputs = set(loop.arrays.values()) | {c.initial for c in loop.carried if not is_literal(graph, c.initial)}
        outputs = [c.result for c in loop.carried if c.result is not None] + [s.result for s in loop.stacked]
        nodes = frozenset({node.id, *graph.users[node.id]})
        read = tuple(sorted(i for i in inputs if not is_free(graph[i]) or not is_literal(graph, i)))
        found.append(Pattern(nodes, loop.rows, {}, read, tuple(sorted(outputs)), loop=loop))
    return found


def is_literal(graph: Graph, i: int) -> bool:
    """Whether a value is written out in the kernel's text: a small constant, or one broadcast."""
    node = graph[i]
    if node.op == "broadcast":
        node = graph[node.operands[0]]
    return node.op == "constant" and node.literal is not None and node.literal.size <= MAX_PLACES


def literal_of(graph: Graph, i: int, index: Index) -> np.ndarray:
    """An element of a value that ``is_literal``."""
    node = graph[i]
    if node.op == "broadcast":
        index = tuple(index[d] for d in node.attributes.get("dimensions", ()))
        node = graph[node.operands[0]]
    assert node.literal is not None
    return np.asarray(node.literal[tuple(e.offset for e in index)])


@dataclass(frozen=True, slots=True)
class Roles:
    """What each value that a ``while`` carries is, by its number: an array that no iteration changes, an output of
    which every iteration writes a slice (``stacked``: number, slice in the body, where it starts), or a value.

    ``body`` has counters in closed form, and ``condition`` where the number of trips is not known. ``results`` is what
    outside reads the carried values.
    """

    body: Graph
    trips: int | None
    condition: int | None
    arrays: Mapping[int, int]
    stacked: tuple[tuple[int, int, Index], ...]
    values: tuple[int, ...]
    results: Mapping[int, int | None]


def roles_of(graph: Graph, node: Node) -> Roles | None:
    """The roles of what a ``while`` carries; ``None`` where it is used in a way that no kernel can serve."""
    trips = node.attributes.get("trip_count")
    results = _results(graph, node)
    if results is None or trips == 0:
        return None
    condition: int | None = None
    if trips is not None:
        body = _with_counters(graph, node, trips)
    else:
        with_condition = _with_condition(node)
        if with_condition is None:
            return None
        body, condition = with_condition
    arrays: dict[int, int] = {}
    stacked: list[tuple[int, int, Index]] = []
    values: list[int] = []
    for k, parameter in enumerate(body.parameters):
        following = body.results[k]
        if body[parameter].op == STEP:
            if results.get(k) is not None:
                return None
        elif following == parameter:
            if results.get(k) is not None:
                return None
            arrays[parameter] = node.operands[k]
        elif trips is not None and (stack := _stack(body, parameter, following, trips)) is not None:
            if results.get(k) is not None:
                stacked.append((k, body[following].operands[1], stack))
        elif not isinstance(body[parameter].type, TensorType):
            return None
        else:
            values.append(k)
    return Roles(body, trips, condition, MappingProxyType(arrays), tuple(stacked), tuple(values), results)


def local_loop(graph: Graph, node: Node) -> Loop | None:
    """How a ``while`` of ``graph`` is local to the rows of its carried values; ``None`` where it is not."""
    roles = roles_of(graph, node)
    if roles is None:
        return None
    body, condition, results = roles.body, roles.condition, roles.results
    others = [u for _, u, _ in roles.stacked] + ([condition] if condition is not None else [])
    for bindings, rows in _splits(body, list(roles.values), others):
        carried = tuple(
            Carried(body.parameters[k], body.results[k], node.operands[k], results.get(k), bindings[body.parameters[k]])
            for k in roles.values
        )
        outputs = tuple(Stacked(u, starts, results[k] or 0, bindings[u]) for k, u, starts in roles.stacked)
        goes_on = (condition, bindings[condition]) if condition is not None else None
        loop = Loop(body, roles.trips, rows, carried, outputs, roles.arrays, goes_on)
        if _is_local(loop):
            return loop
    return None


def _with_counters(graph: Graph, node: Node, trips: int) -> Graph:
    """The body with every parameter that counts replaced by its closed form."""
    body = node.graphs["body"]
    nodes = list(body.nodes)
    for k, parameter in enumerate(body.parameters):
        following = body[body.results[k]]
        start = graph[node.operands[k]].literal
        if following.op != "add" or parameter not in following.operands or start is None or start.ndim:
            continue
        (other,) = [o for o in following.operands if o != parameter] or [parameter]
        by = body[other].literal
        if by is None or body[parameter].tensor.dtype[0] not in "su":
            continue
        attributes = MappingProxyType({"start": int(start), "by": int(by), "trips": trips})
        nodes[parameter] = replace(body[parameter], op=STEP, attributes=attributes)
    return replace(body, nodes=tuple(nodes))


def _with_condition(node: Node) -> tuple[Graph, int] | None:
    """The body with the loop's condition for each row as a further value of it.

    A condition of the whole batch is ``any`` over its rows (``while_loop`` under ``vmap``). Then rows that are done
    must stay as they are while others go on, which the body shows by selecting, with the same condition, between the
    new value and the old.
    """
    body, test = node.graphs["body"], node.graphs["condition"]
    root = test[test.results[0]]
    per_row = root.op == "reduce"
    if per_row:
        combined = [n.op for n in root.graphs["to_apply"].nodes if n.op != "parameter"]
        if combined != ["or"] or len(root.operands) != 2 or root.tensor.dims:
            return None
        root = test[root.operands[0]]
    nodes = list(body.nodes)
    moved: dict[int, int] = dict(zip(test.parameters, body.parameters, strict=True))
    for n in test.nodes[: root.id + 1]:
        if n.id not in moved:
            moved[n.id] = len(nodes)
            nodes.append(replace(n, id=len(nodes), operands=tuple(moved[o] for o in n.operands)))
    joined = replace(body, nodes=tuple(nodes))
    condition = moved[root.id]
    if per_row:
        for parameter, following in zip(body.parameters, body.results, strict=True):
            select = joined[following]
            if following == parameter:
                continue
            keeps = select.op == "select" and select.operands[2] == parameter
            if not keeps or not _same(joined, select.operands[0], condition):
                return None
    return joined, condition


def _same(graph: Graph, a: int, b: int, known: set[tuple[int, int]] | None = None) -> bool:
    """Whether two nodes compute the same from the same parameters."""
    known = set() if known is None else known
    x, y = graph[a], graph[b]
    if a == b or (a, b) in known:
        return True
    known.add((a, b))  # Where this turns out wrong, the whole answer is no.
    if (x.op, x.type, x.attributes) != (y.op, y.type, y.attributes) or x.op in ("parameter", "reduce"):
        return False
    if (x.literal is None) != (y.literal is None) or len(x.operands) != len(y.operands):
        return False
    if x.literal is not None and y.literal is not None and x.literal.tobytes() != y.literal.tobytes():
        return False
    return all(_same(graph, o, p, known) for o, p in zip(x.operands, y.operands, strict=True))


def _results(graph: Graph, node: Node) -> dict[int, int | None] | None:
    """What reads each carried value after the loop, by number; ``None`` where the loop is used in another way."""
    found: dict[int, int | None] = {}
    if node.id in graph.results:
        return None
    for u in graph.users[node.id]:
        if graph[u].op != "get-tuple-element":
            return None
        found[graph[u].attributes["index"]] = u
    return found


def _stack(body: Graph, parameter: int, following: int, trips: int) -> Index | None:
    """Where each iteration writes its slice, if a carried array is only written: one slice per step, until all is
    written.
    """
    node = body[following]
    if node.op != "dynamic-update-slice" or node.operands[0] != parameter or body.users[parameter] != (following,):
        return None
    if following in body.users[parameter] and (body.users[following] or body.results.count(following) != 1):
        return None
    dims, slice_ = node.tensor.dims, body[node.operands[1]].tensor.dims
    starts: list[Expr] = []
    moving = 0
    for d, o in enumerate(node.operands[2:]):
        start = value_of(body, body[o], ())
        if start is None or start.low < 0 or start.high > dims[d] - slice_[d]:
            return None
        if start.is_const and slice_[d] == dims[d]:
            starts.append(const(0))
            continue
        by = {c for _, c in start.terms}
        if slice_[d] != 1 or start.high - start.low + 1 != dims[d] or dims[d] != trips or by not in ({1}, {-1}):
            if not (start.is_const and dims[d] == 1):
                return None
        moving += not start.is_const
        starts.append(start)
    return tuple(starts) if moving == 1 or trips == 1 else None


def _splits(body: Graph, values: list[int], updates: list[int]) -> Iterator[tuple[dict[int, Binding], int]]:
    """Ways to split the carried values into rows, the finest first: bindings of all parameters and updates, and the
    number of rows.
    """
    candidates = {n.id for n in body.nodes if n.op not in ("parameter", STEP) and isinstance(n.type, TensorType)}
    seeds: list[tuple[int, int, Binding]] = []
    for i in [*(body.parameters[k] for k in values), *updates]:
        dims = body[i].tensor.dims
        for n in range(len(dims), 0, -1):
            seeds.append((prod(dims[:n]), i, rows_of(dims, range(n))))
    for rows, seed, binding in sorted(seeds, key=lambda s: -s[0]):
        if rows < 2:
            continue
        bound = bind(body, seed, binding, rows, candidates)
        while True:
            missing = [
                (body.parameters[k], bound[body.results[k]])
                for k in values
                if body.parameters[k] not in bound and body.results[k] in bound
            ]
            if not missing:
                break
            for parameter, b in missing:
                bound |= {i: x for i, x in bind(body, parameter, b, rows, candidates).items() if i not in bound}
        every = {i: bound.get(i, _uniform(body, i)) for i in [*(body.parameters[k] for k in values), *updates]}
        if all(prod(inner_sizes(b)) <= MAX_PLACES for b in every.values()):
            yield every, rows
    alone = {i: _uniform(body, i) for i in [*(body.parameters[k] for k in values), *updates]}
    if all(prod(inner_sizes(b)) <= MAX_PLACES for b in alone.values()):
        yield alone, 1


def is_uniform(binding: Binding) -> bool:
    """Whether all rows have the same value."""
    return all(f.stride is None for dim in binding for f in dim)


def _uniform(body: Graph, i: int) -> Binding:
    return tuple(inner(size) for size in body[i].tensor.dims)


def elements_of(binding: Binding, rows: int) -> list[Index]:
    """The index of each of a value's places in a row."""
    return [index_of(binding, row_index(rows), const(p)) for p in range(prod(inner_sizes(binding)))]


def _is_local(loop: Loop) -> bool:
    """Follows every element that an iteration needs: all must come from the row's own carry, or from arrays outside."""
    body = loop.body
    carried = {c.parameter: c.binding for c in loop.carried}
    row = row_index(loop.rows)
    waiting: list[tuple[int, Index]] = []
    for c in loop.carried:
        if not (is_uniform(c.binding) or covers(c.binding, loop.rows)):
            return False
        waiting += [(c.next, i) for i in elements_of(c.binding, loop.rows)]
    for s in loop.stacked:
        if not covers(s.binding, loop.rows):
            return False
        waiting += [(s.update, i) for i in elements_of(s.binding, loop.rows)]
    if loop.goes_on is not None:
        i, binding = loop.goes_on
        places = elements_of(binding, loop.rows)
        if len(places) != 1 or not (is_uniform(binding) or covers(binding, loop.rows)):
            return False
        waiting.append((i, places[0]))
    seen: set[tuple[int, Index]] = set()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        if len(seen) > MAX_ELEMENTS:
            return False
        i, index = here
        node = body[i]
        if i in carried:
            position = position_in(carried[i], row, index)
            if position is None or not position.is_const:
                return False
        elif i in loop.arrays or node.op in ("constant", "iota", STEP):
            continue
        elif is_contraction(body, node):
            waiting += [e for step in contracted(body, node, index) for e in step]
            waiting += [(o, ()) for o in node.operands[1:] if node.op == "reduce"]
        elif node.op == "parameter" or reason_unsupported(body, node) is not None or node.op == "reduce":
            return False
        else:
            for read in reads(body, node, index):
                if any(not g.always for g in read.guards):
                    return False
                waiting.append((node.operands[read.operand], read.index))
                waiting += [(node.operands[o], at) for _, o, at in read.starts]
    return True
