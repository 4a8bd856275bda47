"""Which values a kernel reads and which it recomputes from others: the cheaper of the two, as a minimum cut.

XLA copies cheap producers into every fusion that uses them; merging those copies (as the graph does) must not turn into
memory traffic. So for every group of nodes that will run together, the way from what has to be in memory anyway
(arguments, results, operands of library calls, results of reductions) to what the group needs is cut where reading
costs least (2019 paper, "substitution").
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from msgspec import Struct

from jax_stitch.analysis.maps import MOVES
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_rematerializable, is_view, reason_unsupported
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import operation_bytes
from jax_stitch.fusion.launches.min_cut import Edge, near_side
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.groups import Groups

LARGEST = 400
"""Nodes above a group that are looked at, the nearest first; what lies behind them is read, not made."""

SCALAR_BYTES = 64
"""Values up to this size cost nothing to have twice."""


def choose_reads(
    graph: Graph,
    patterns: Sequence[Pattern],
    loops: Sequence[Pattern],
    device: Device,
    gone: Collection[int] = (),
    in_memory: Collection[int] = (),
) -> tuple[Pattern, ...]:
    """Return the patterns with their inputs chosen again, nodes they compute in addition, and only those outputs that
    somebody reads. What ``loops`` read and write is settled; nodes that are ``gone`` nobody writes; those ``in_memory``
    nobody computes in addition.
    """
    owner = {i: k for k, p in enumerate(patterns) for i in p.nodes}
    values = _Values(graph, device, {i for p in loops for i in p.nodes} | set(in_memory))
    light = values.light
    elsewhere = owner.keys() | {i for p in loops for i in p.nodes} | set(gone)
    rest = [n.id for n in graph.nodes if n.id not in elsewhere and not is_rematerializable(n)]
    library = [i for i in rest if i not in light]
    needed = {*graph.results, *(o for i in library for o in graph[i].operands)}
    needed |= {i for p in loops for i in (*p.inputs, *p.outputs)}
    groups: dict[str, set[int]] = defaultdict(set)
    views = [i for i in rest if i in light and values.is_view(i)]
    for i in rest:
        if i in light and not values.is_view(i):
            groups[graph[i].kernel].add(i)
    # What a kernel recomputes in each row it cannot write.
    unwritten = {i for p in patterns for i in p.nodes if i not in p.bindings and i in light}
    hidden = set(unwritten)
    hidden |= {i for i in gone if i in light}
    hidden -= set(in_memory)
    copies: list[frozenset[int]] = []
    inputs: list[tuple[int, ...]] = []
    for p in patterns:
        read, copied = _cut(values, p.inputs, needed, hidden)
        needed |= read
        copies.append(frozenset(copied))
        inputs.append(tuple(sorted(read)))
    products = {graph[i].kernel for i in library}
    for kernel, group in groups.items():
        read = {o for i in group for o in graph[i].operands}
        for i in reversed(views):
            if i in read:
                read |= set(graph[i].operands)
        # Also through what nobody writes: XLA makes that of what somebody does.
        above = {o for o in read if (o in owner or o in gone) and not is_rematerializable(graph[o])}
        # XLA takes no more work into a product than it has there.
        needed |= above if kernel in products else _cut(values, above, needed, hidden)[0]
    for i in reversed(views):
        if i in needed:
            needed |= set(graph[i].operands)
    chosen = []
    for p, reads, made in zip(patterns, inputs, copies, strict=True):
        written = (i for i in p.nodes if i in needed and i not in unwritten)
        outputs = tuple(sorted(i for i in written if isinstance(graph[i].type, TensorType)))
        read = {o for i in (*p.nodes, *made) for o in graph[i].operands}  # An iota too, which is no input.
        bindings = {i: b for i, b in p.bindings.items() if i in p.nodes or i in made or i in reads or i in read}
        chosen.append(replace(p, bindings=bindings, inputs=reads, outputs=outputs, copies=made))
    return tuple(chosen)


class _Values:
    """What the values of a graph are to a cut, each looked at once: the cuts of a model's layers meet the same ones.

    ``light`` are those that may be computed again; those of them that are ``looped`` are made of nothing, since that
    stays inside the loop's kernel.
    """

    def __init__(self, graph: Graph, device: Device, looped: Collection[int]):
        self.graph = graph
        self.light = frozenset(n.id for n in graph.nodes if _is_light(graph, n))
        self.makeable = self.light - frozenset(looped)
        self._device = device
        self._views = frozenset(i for i in self.light if is_view(graph[i]))
        self._operands: dict[int, tuple[int, ...]] = {}
        self._work: dict[int, int] = {}
        self._alone: dict[int, frozenset[int] | None] = {}
        self.bytes = [node_bytes(node) for node in graph.nodes]

    def is_view(self, i: int) -> bool:
        """Return whether a value is light to compute."""
        return i in self._views

    def is_always_made(self, i: int) -> bool:
        """Return whether a value is computed again wherever it may be. A scalar made by a kernel of its own costs a
        launch.
        """
        return i in self._views or self.graph[i].tensor.size == 1

    def operands(self, i: int) -> tuple[int, ...]:
        """Return those that are not made anew wherever they are needed."""
        if i not in self._operands:
            graph = self.graph
            self._operands[i] = tuple(o for o in graph[i].operands if not is_rematerializable(graph[o]))
        return self._operands[i]

    def work(self, i: int) -> int:
        """Return the cost of computing a value, in bytes that could be read meanwhile."""
        if i not in self._work:
            self._work[i] = round(operation_bytes([self.graph[i]], self._device))
        return self._work[i]

    def is_better_read(self, i: int, wanted: Collection[int]) -> bool:
        """Return whether computing one that is in memory costs more than to read it, by what can only be read, and is
        for nothing else, nor ``wanted``: a residual's sum has a product for itself alone.
        """
        if i not in self._alone:
            users = self.graph.users
            alone = frozenset(o for o in self.operands(i) if o not in self.makeable and users[o] == (i,))
            least = self.work(i) + sum(self.bytes[o] + 1 for o in alone)
            self._alone[i] = alone if not self.is_always_made(i) and least > self.bytes[i] + 1 else None
        alone_for_it = self._alone[i]
        return alone_for_it is not None and alone_for_it.isdisjoint(wanted)


def _is_light(graph: Graph, node: Node) -> bool:
    return (node.op in ELEMENTWISE or node.op in MOVES) and reason_unsupported(graph, node) is None


def _cut(
    values: _Values, wanted: Collection[int], in_memory: Collection[int], hidden: Collection[int]
) -> tuple[set[int], set[int]]:
    """Return, for values that are wanted, those to read (none of the ``hidden``) and those to compute from them."""
    read: set[int] = set()
    made: set[int] = set()

    def is_read(i: int) -> bool:
        return i in in_memory and i not in hidden and values.is_better_read(i, wanted)

    for together in _apart(values, wanted, hidden, is_read):
        r, m = _cut_one(values, together, in_memory, hidden, is_read)
        read |= r
        made |= m
    return _of_use(values.graph, wanted, read, made)


def _of_use(
    graph: Graph, wanted: Collection[int], read: Collection[int], made: Collection[int]
) -> tuple[set[int], set[int]]:
    """Return what is needed of what is read and computed: if one group reads what another computes, nobody needs the
    operands of that.
    """
    waiting = list(wanted)
    needed: set[int] = set()
    while waiting:
        i = waiting.pop()
        if i not in needed:
            needed.add(i)
            waiting += graph[i].operands if i in made and i not in read else ()
    return needed & set(read), (needed & set(made)) - set(read)


def _apart(
    values: _Values, wanted: Collection[int], hidden: Collection[int], is_read: Callable[[int], bool]
) -> Iterable[list[int]]:
    """Return the wanted values in groups that have nothing but scalars above them in common: the tensors of an
    optimizer.
    """
    if len(wanted) == 1:
        return [list(wanted)]
    groups = Groups(wanted)
    below: dict[int, int] = {}
    """The wanted value from which each was reached first."""
    for w in wanted:
        for i in _above(values, [w], hidden, lambda i: i in below or is_read(i)):
            if values.bytes[i] > SCALAR_BYTES and below.setdefault(i, w) != w:
                groups.join(w, below[i])
    by_group: dict[int, list[int]] = defaultdict(list)
    for w in wanted:
        by_group[groups.group(w)].append(w)
    return by_group.values()


def _cut_one(
    values: _Values,
    wanted: Sequence[int],
    in_memory: Collection[int],
    hidden: Collection[int],
    is_read: Callable[[int], bool],
) -> tuple[set[int], set[int]]:
    """Return ``_cut`` of values that belong together."""
    if not any(i in values.makeable for i in wanted):
        return set(wanted), set()
    above = _above(values, wanted, hidden, is_read)
    local = {i: k for k, i in enumerate(above)}
    choices = []
    for i, makeable in above.items():
        price = values.bytes[i] * (1 if i in in_memory or i not in values.light else 2)
        always = makeable and (i in hidden or values.is_always_made(i))
        work: int | None = None
        operands: tuple[int, ...] = ()
        if makeable:
            work = values.work(i)
            operands = tuple(local[o] for o in values.operands(i))
        choices.append(_Choice(None if always else price + 1, work, operands))
    read, made = _cheapest(tuple(choices), tuple(local[i] for i in wanted))
    found = list(above)
    return {found[k] for k in read}, {found[k] for k in made}


class _Choice(Struct, frozen=True):
    """What a value costs read and made, in bytes; ``None`` where it is not to be read, or cannot be made."""

    read: int | None
    made: int | None
    operands: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def _cheapest(choices: tuple[_Choice, ...], wanted: tuple[int, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """Return which values to read and which to compute, so that all wanted ones are there. Layers of a model ask the
    same.
    """
    count = len(choices)
    # Of value k, 2k is that it is there and 2k + 1 that it is made.
    source, sink = 2 * count, 2 * count + 1
    edges: list[Edge] = [(source, 2 * k, None) for k in wanted]
    for k, choice in enumerate(choices):
        edges += ((2 * k, 2 * k + 1, choice.read), (2 * k + 1, sink, choice.made))
        edges += ((2 * k + 1, 2 * o, None) for o in choice.operands)
    near = near_side(2 * count + 2, edges, source, sink)
    made = frozenset(k for k in range(count) if 2 * k + 1 in near)
    return frozenset(k for k in range(count) if 2 * k in near) - made, made


def _above(
    values: _Values, wanted: Iterable[int], hidden: Collection[int], is_last: Callable[[int], bool]
) -> dict[int, bool]:
    """Return the values that ``wanted`` can be computed from by light operations, and whether each may be made of
    those.

    They are all there are or the nearest ones; what is ``hidden`` is always made. What the ``is_last`` ones are made of
    is not looked at.
    """
    above = dict.fromkeys(wanted, False)
    waiting = deque(above)
    while waiting:
        i = waiting.popleft()
        if i not in values.makeable or is_last(i):
            continue
        if len(above) > LARGEST and i not in hidden and not values.is_view(i):
            continue
        above[i] = True
        for o in values.operands(i):
            if o not in above:
                above[o] = False
                waiting.append(o)
    return above
