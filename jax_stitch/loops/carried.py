"""What each value that a ``while`` carries is: a counter, an array that no iteration changes, an output of which every
iteration writes a slice, or a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from jax_stitch.analysis.maps import STEP, Index, value_of
from jax_stitch.analysis.support import is_computed
from jax_stitch.graph.builder import moved
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices import Expr, const
from jax_stitch.util.values import replace


class Roles(Struct, frozen=True):
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


def roles_of(graph: Graph, node: Node, *, counters_after: bool = False, step: str = "step") -> Roles | None:
    """Return the roles of what a ``while`` carries; ``None`` where it is used in a way that no kernel can serve.

    With ``counters_after``, what counts may be read after the loop too. Its iterations are counted by ``step``.
    """
    trips = node.attributes.get("trip_count")
    results = _results(graph, node)
    if results is None or trips == 0:
        return None
    condition: int | None = None
    if trips is not None:
        body = _with_narrow_stacks(_with_counters(graph, node, trips, step))
    else:
        with_condition = _with_condition(graph, node)
        if with_condition is None:
            return None
        body, condition = with_condition
    arrays: dict[int, int] = {}
    stacked: list[tuple[int, int, Index]] = []
    values: list[int] = []
    for k, parameter in enumerate(body.parameters):
        following = body.results[k]
        if body[parameter].op == STEP:
            if results.get(k) is not None and not counters_after:
                return None
        elif following == parameter:
            if results.get(k) is not None:
                return None
            arrays[parameter] = node.operands[k]
        elif trips is not None and (stack := _stack(body, parameter, following, trips)) is not None:
            if results.get(k) is not None:
                stacked.append((k, body[following].operands[1], stack))
        elif not is_computed(body[parameter].type):
            return None
        else:
            values.append(k)
    return Roles(body, trips, condition, MappingProxyType(arrays), tuple(stacked), tuple(values), results)


def _with_counters(graph: Graph, node: Node, trips: int, step: str) -> Graph:
    """Return the body with every parameter that counts replaced by its closed form."""
    body = node.graphs["body"]
    nodes = list(body.nodes)
    for k, parameter in enumerate(body.parameters):
        if (counts := counter_of(graph, node, k)) is not None:
            attributes = MappingProxyType({"start": counts[0], "by": counts[1], "trips": trips, "name": step})
            nodes[parameter] = replace(body[parameter], op=STEP, attributes=attributes)
    return replace(body, nodes=tuple(nodes))


def counter_of(graph: Graph, node: Node, k: int) -> tuple[int, int] | None:
    """Return where value ``k`` of what a ``while`` carries starts and what each step adds, if it is an integer that
    only counts.

    One that leaves the range of its type on the way wraps around: it is no counter, but a value like others.
    """
    body = node.graphs["body"]
    parameter, following = body.parameters[k], body[body.results[k]]
    start = graph[node.operands[k]].literal
    if following.op != "add" or parameter not in following.operands or start is None or start.ndim:
        return None
    (other,) = [o for o in following.operands if o != parameter] or [parameter]
    by = body[other].literal
    if by is None or body[parameter].tensor.dtype[0] not in "su":
        return None
    last = int(start) + int(by) * max((node.attributes.get("trip_count") or 1) - 1, 0)
    if not body[parameter].tensor.holds(min(int(start), last), max(int(start), last)):
        return None
    return int(start), int(by)


def counters(body: Graph) -> tuple[int, ...]:
    """Return the next values of what a loop's body carries and only adds a constant to: whole numbers that count its
    steps.
    """
    counts: list[int] = []
    for parameter, following in zip(body.parameters, body.results, strict=False):
        node = body[following]
        if node.op == "add" and parameter in node.operands and node.tensor.size == 1 and node.tensor.dtype[0] in "su":
            if any(body[o].literal is not None for o in node.operands):
                counts.append(following)
    return tuple(counts)


def _with_narrow_stacks(body: Graph) -> Graph:
    """Return the body with stacks of small floats updated as they are, where XLA's CPU compiler widens them for it."""
    nodes = list(body.nodes)
    results = list(body.results)
    for k, parameter in enumerate(body.parameters):
        narrow = body[body.results[k]]
        if narrow.op != "convert" or body[narrow.operands[0]].op != "dynamic-update-slice":
            continue
        update = body[narrow.operands[0]]
        wide, stack_type = body[update.operands[0]], body[parameter].type
        if wide.op != "convert" or wide.operands != (parameter,) or narrow.type != stack_type:
            continue
        if (narrow.tensor.dtype, wide.tensor.dtype) not in (("bf16", "f32"), ("f16", "f32")):
            continue
        if body.users[parameter] != (wide.id,) or body.users[wide.id] != (update.id,):
            continue
        slice_ = body[update.operands[1]]
        type_ = TensorType(narrow.tensor.dtype, slice_.tensor.dims)
        nodes.append(replace(narrow, id=len(nodes), type=type_, operands=(slice_.id,)))
        operands = (parameter, len(nodes) - 1, *update.operands[2:])
        nodes.append(replace(update, id=len(nodes), type=stack_type, operands=operands))
        results[k] = len(nodes) - 1
    if len(nodes) == len(body):
        return body
    return _pruned(replace(body, nodes=tuple(nodes), results=tuple(results)))


def bare(body: Graph, i: int) -> int:
    """Return a value without changes of its shape."""
    while body[i].op == "reshape":
        i = body[i].operands[0]
    return i


def _pruned(body: Graph) -> Graph:
    """Return the body without nodes that nothing needs."""
    needed, waiting = set(body.parameters), list(body.results)
    while waiting:
        i = waiting.pop()
        if i not in needed:
            needed.add(i)
            waiting += body[i].operands
    number = {i: k for k, i in enumerate(sorted(needed))}
    nodes = tuple(moved(body[i], k, tuple(number[o] for o in body[i].operands)) for i, k in number.items())
    return replace(
        body,
        nodes=nodes,
        parameters=tuple(number[p] for p in body.parameters),
        results=tuple(number[r] for r in body.results),
    )


def _with_condition(graph: Graph, node: Node) -> tuple[Graph, int] | None:
    """Return the body with the loop's condition for each row as a further value of it.

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
    initial = dict(zip(body.parameters, node.operands, strict=True))
    outside = {p: initial[p] for p, following in zip(body.parameters, body.results, strict=True) if p == following}
    same = _Same(joined, graph, outside)
    if per_row:
        for parameter, following in zip(body.parameters, body.results, strict=True):
            select = joined[following]
            if following == parameter:
                continue
            keeps = select.op == "select" and select.operands[2] == parameter
            if not keeps or not same.holds((True, _spread(joined, select.operands[0])), (True, condition)):
                return None
    return joined, condition


def _spread(graph: Graph, i: int) -> int:
    """Return the value that another is broadcast from. Which dimensions are new, whoever follows its elements
    finds out.
    """
    while graph[i].op in ("broadcast", "reshape", "transpose"):
        i = graph[i].operands[0]
    return i


class _Same(Struct, frozen=True):
    """Compares what nodes of a body compute. Values that no iteration changes are looked for outside the loop, where
    XLA moves what depends on nothing else: of a condition and the same condition in the body often from one alone.
    """

    body: Graph
    around: Graph
    outside: Mapping[int, int]
    """The body's parameters that no iteration changes, and what they are outside."""

    def _at(self, value: tuple[bool, int]) -> tuple[bool, int]:
        inside, i = value
        return (False, self.outside[i]) if inside and i in self.outside else value

    def holds(self, one: tuple[bool, int], other: tuple[bool, int]) -> bool:
        """Return whether two nodes, each inside the body or not, compute the same from the same parameters."""
        waiting, known = [(one, other)], set[tuple[tuple[bool, int], tuple[bool, int]]]()
        while waiting:
            a, b = map(self._at, waiting.pop())
            if a == b or (a, b) in known:
                continue
            known.add((a, b))
            x, y = (self.body[i] if inside else self.around[i] for inside, i in (a, b))
            if (x.op, x.type, x.attributes) != (y.op, y.type, y.attributes) or x.graphs or x.op == "parameter":
                return False
            if (x.literal is None) != (y.literal is None) or len(x.operands) != len(y.operands):
                return False
            if x.literal is not None and y.literal is not None and x.literal.tobytes() != y.literal.tobytes():
                return False
            waiting += [((a[0], o), (b[0], p)) for o, p in zip(x.operands, y.operands, strict=True)]
        return True


def _results(graph: Graph, node: Node) -> dict[int, int | None] | None:
    """Return what reads each carried value after the loop, by number; ``None`` if the loop is used in another way."""
    readers: dict[int, int | None] = {}
    if isinstance(node.type, TensorType):
        return {0: node.id}
    if node.id in graph.result_set:
        return None
    for u in graph.users[node.id]:
        if graph[u].op != "get-tuple-element":
            return None
        readers[graph[u].attributes["index"]] = u
    return readers


def _stack(body: Graph, parameter: int, following: int, trips: int) -> Index | None:
    """Return where each iteration writes its slice, if a carried array is only written: one slice per step, until all
    is written.
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
