"""A large graph in pieces that no pattern can span, each planned by itself; pieces that are alike are planned once.

A pattern cannot hold values from before and from after a library call that stands between them (2018 paper, section
3.2: layers between library calls). So the nodes are divided into layers by how many such calls come before them, and
each layer into connected pieces: between two products of a layer there are a few dozen operations, however many layers
there are. A reduction to a single number ends a layer too, since what reads it has to wait for all of it.

Where a node may stand in several layers it goes where that saves memory traffic: with what reads it, as long as that is
more than what it reads itself; what is read once more may also be made once more, so it counts half.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from msgspec import Struct

from jax_stitch.analysis.inputs_outputs import inputs_of, outputs_of
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import contracted_order
from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_rematerializable, is_view, reason_left
from jax_stitch.devices import Device
from jax_stitch.fusion.outcome import Begun, Outcome, Planner
from jax_stitch.fusion.patience import Patience
from jax_stitch.fusion.piece import Piece, cut_out
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.util.groups import Groups
from jax_stitch.util.values import replace

LARGEST_WHOLE = 800
"""Nodes of a graph that is planned as a whole too. Larger ones are planned in pieces alone, in time that grows with
their number: a greedy search of the whole grows with its square.
"""

LARGEST_JOINED = 500
"""Nodes of pieces that are planned together though nothing but numbers connects them."""

SHARED_BYTES = 64
"""Values from outside up to this size do not connect those that read them."""

CAREFUL = 1000
"""Nodes of pieces unlike each other that are planned with all care; further ones are planned quickly. Care takes
milliseconds a node.
"""


NEAR = 0.98
"""The share of what no plan of the pieces can exceed, in all, at which better plans of more pieces are not looked for
unless the best is asked for."""


def in_pieces(
    planner: Planner, graph: Graph, loops: ThreadLoops, device: Device, patience: Patience, *, is_planned: bool
) -> Outcome | None:
    """Return what a planner chooses of each of the graph's pieces; none if there is one alone and it ``is_planned`` as
    a whole.
    """
    taken = {i for p in loops.patterns for i in p.nodes} | set(loops.refused)
    free = {
        n.id for n in graph.nodes if n.id not in taken and not is_rematerializable(n) and reason_left(graph, n) is None
    }
    groups = pieces(graph, free, [p.nodes for p in loops.patterns])
    if is_planned and len(groups) < 2:
        return None
    cut = [cut_out(graph, nodes, copied) for nodes, copied in groups]
    unlike: dict[object, _Unlike] = {}
    planned = 0
    for piece, (nodes, _) in zip(cut, groups, strict=True):
        if piece.form in unlike:
            unlike[piece.form].count += 1
            continue
        planned += len(nodes)
        unlike[piece.form] = _Unlike(_begun(planner, piece.graph, device, patience), planned <= CAREFUL)
    _improve(list(unlike.values()), patience)
    return assembled(graph, [(piece, unlike[piece.form].outcome) for piece in cut], loops)


class _Unlike:
    """How far the planning of a piece has come, and of those that are like it."""

    def __init__(self, begun: Begun, with_care: bool):
        self.begun = begun
        self.with_care = with_care
        self.count = 1
        self.outcome = begun.outcome

    @property
    def missing(self) -> float:
        return self.begun.missing * self.count


def _begun(planner: Planner, graph: Graph, device: Device, patience: Patience) -> Begun:
    loops = ThreadLoops((), {})
    if planner.begin is not None:
        return planner.begin(graph, loops, device)
    outcome = planner.choose(graph, loops, device, patience)
    return Begun(outcome, outcome.saved, 0.0, lambda patience, with_care: outcome)


def _improve(unlike: Sequence[_Unlike], patience: Patience) -> None:
    """Look for better plans, first of the pieces that miss most: time is often over before all have been looked at."""
    left = sum(piece.missing for piece in unlike)
    enough = (1 - NEAR) * sum(piece.begun.most * piece.count for piece in unlike)
    for piece in sorted(unlike, key=lambda piece: -piece.missing):
        if patience.is_over or (left <= enough and not patience.is_endless):
            return
        piece.outcome = piece.begun.improved(patience, piece.with_care)
        left -= piece.missing


Group = tuple[list[int], list[int]]
"""The nodes of a piece, and those that it rematerialises."""


def pieces(graph: Graph, free: Collection[int], loops: Sequence[Collection[int]]) -> list[Group]:
    """Return the free nodes in pieces, and for each piece numbers that are rematerialised in each piece that reads
    them.
    """
    layer = layers(graph, free, loops)
    copied = _copied(graph, free, layer)
    inside = Groups[Hashable]()
    for i in sorted(free):
        if i in copied:
            continue
        inside.group(i)
        for o in graph[i].operands:
            if o in free and layer[o] == layer[i] and o not in copied:
                inside.join(o, i)
            elif o not in copied and not is_rematerializable(graph[o]) and node_bytes(graph[o]) > SHARED_BYTES:
                inside.join(("value", o, layer[i]), i)
    groups = []
    for group in inside.all():
        nodes = sorted(i for i in group if isinstance(i, int))
        needed: set[int] = set()
        waiting = [o for i in nodes for o in graph[i].operands]
        while waiting:
            o = waiting.pop()
            if o in copied and o not in needed:
                needed.add(o)
                waiting += graph[o].operands
        groups.append((nodes, sorted(needed)))
    return _joined(graph, sorted(groups), layer)


def _joined(graph: Graph, groups: Sequence[tuple[list[int], list[int]]], layer: Sequence[int]) -> list[Group]:
    """Return pieces of one layer that are made of the same arrays of one number, together: the tensors of an
    optimizer.
    """
    joined: list[Group] = []
    last: dict[tuple[int, int], int] = {}
    for nodes, needed in groups:
        shared = [(layer[nodes[0]], i) for i in needed if graph[i].tensor.size > 1]
        k = next((last[key] for key in shared if key in last), None)
        if k is not None and len(joined[k][0]) + len(nodes) <= LARGEST_JOINED:
            joined[k] = (sorted([*joined[k][0], *nodes]), sorted({*joined[k][1], *needed}))
        else:
            k = len(joined)
            joined.append((nodes, needed))
        last |= dict.fromkeys(shared, k)
    return joined


def layers(graph: Graph, free: Collection[int], loops: Sequence[Collection[int]]) -> list[int]:
    """Return the layer of each node: no node stands before what it reads, nor beside it behind a call.

    All nodes of one of ``loops`` stand in one layer: they are one kernel, which waits for all that any of them reads.
    """
    in_loops = {i for loop in loops for i in loop}
    ends = [n.id in in_loops or _ends_layer(graph, n, free) for n in graph.nodes]
    head, units = _units(graph, loops)
    earliest = [0] * len(graph)
    for h, unit in units.items():
        read = (earliest[o] + ends[o] for i in unit for o in graph[i].operands if head[o] != h)
        at = max(read, default=0)
        for i in unit:
            earliest[i] = at
    latest = [max(earliest, default=0)] * len(graph)
    for h, unit in reversed(units.items()):
        users = (latest[u] - ends[h] for i in unit for u in graph.users[i] if head[u] != h)
        at = min(users, default=latest[h])
        for i in unit:
            latest[i] = at
    kept = _kept_bytes(graph, free, earliest, latest)
    layer = [0] * len(graph)
    for h, unit in units.items():
        low = max((layer[o] + ends[o] for i in unit for o in graph[i].operands if head[o] != h), default=0)
        for i in unit:
            taken_in = sum(node_bytes(graph[o]) for o in graph[i].operands if _source(graph, o) in free)
            layer[i] = latest[i] if i in free and taken_in <= 2 * kept[i] else low
    return layer


def _source(graph: Graph, i: int) -> int:
    """Return the node that a value is another name or shape of: to read it so takes nothing in."""
    while is_view(graph[i]):
        i = graph[i].operands[0]
    return i


def _units(graph: Graph, loops: Sequence[Collection[int]]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return the head of each node, and the nodes of each head in topological order: a loop's together, any other
    alone.
    """
    head = list(range(len(graph)))
    if not loops:
        return head, {i: (i,) for i in head}
    for loop in loops:
        first = min(loop)
        for i in loop:
            head[i] = first
    members = {min(loop): tuple(sorted(loop)) for loop in loops}
    return head, {h: members.get(h, (h,)) for h in contracted_order(graph, head)}


def _kept_bytes(graph: Graph, free: Collection[int], earliest: Sequence[int], latest: Sequence[int]) -> list[int]:
    """Return bytes written and read again if a node stands early, for those that read it later; library calls read from
    memory in any case.
    """
    kept = [0] * len(graph)
    for node in reversed(graph.nodes):
        i, needed = node.id, 0
        for u in graph.users[i]:
            if u in free:
                may_join = earliest[u] == earliest[i] and latest[u] > earliest[u]
                needed += kept[u] if may_join else 2 * node_bytes(node) * (latest[i] > earliest[i])
        kept[i] = min(needed, 2 * node_bytes(node))
    return kept


def _ends_layer(graph: Graph, node: Node, free: Collection[int]) -> bool:
    if node.op == "parameter" or is_rematerializable(node):
        return False
    if node.id not in free:
        return True
    return node.op == "reduce" and isinstance(node.type, TensorType) and node.type.size == 1


def _copied(graph: Graph, free: Collection[int], layer: Sequence[int]) -> set[int]:
    """Return single numbers, and arrays of one number, that each piece makes for itself from what comes before
    its layer.
    """
    results = graph.result_set
    copied: set[int] = set()
    for node in graph.nodes:
        i = node.id
        if i not in free or i in results or any(u not in free for u in graph.users[i]):
            continue
        if not isinstance(node.type, TensorType) or node.op in ("reduce", "get-tuple-element"):
            continue
        one = node.type.size == 1 or is_of_one_number(graph, i)
        if one and all(o not in free or o in copied or layer[o] < layer[i] for o in node.operands):
            copied.add(i)
    return copied


class _Assembly(Struct):
    """A graph being put together of the nodes outside all pieces and those of the pieces as planned."""

    nodes: list[Node]
    ids: dict[int, int]
    """The new ids of the whole graph's nodes."""

    def add(self, node: Node, operands: tuple[int, ...]) -> int:
        self.nodes.append(replace(node, id=len(self.nodes), operands=operands))
        return len(self.nodes) - 1


def assembled(graph: Graph, outcomes: Sequence[tuple[Piece, Outcome]], loops: ThreadLoops) -> Outcome:
    """Return the outcomes of pieces as one outcome of the whole graph."""
    made = _Assembly([], {})
    places: list[dict[int, int]] = [{} for _ in outcomes]
    """For each piece the new ids of the nodes of its planned graph."""
    owner = {i: k for k, (piece, _) in enumerate(outcomes) for i in piece.nodes}
    for node in graph.nodes:
        k = owner.get(node.id)
        if k is None:
            made.ids[node.id] = made.add(node, tuple(made.ids[o] for o in node.operands))
        else:
            piece, outcome = outcomes[k]
            made.ids[node.id] = _emit(made, graph, piece, outcome, outcome.here[piece.local[node.id]], places[k])
    whole = replace(
        graph,
        nodes=tuple(made.nodes),
        parameters=tuple(made.ids[p] for p in graph.parameters),
        results=tuple(made.ids[r] for r in graph.results),
    )
    groups: list[tuple[Pattern, ...]] = []
    for (piece, outcome), at in zip(outcomes, places, strict=True):
        outside = {outcome.here[piece.local[i]]: made.ids[i] for i in piece.outside}
        moved = [[_moved(whole, p, at, outside) for p in group] for group in outcome.groups]
        kernels = [tuple(p for p in group if p is not None) for group in moved]
        groups += [group for group in kernels if group]
    return Outcome(
        whole,
        tuple(groups),
        tuple(p.renumbered(made.ids) for p in loops.patterns),
        {made.ids[i]: reason for i, reason in loops.refused.items()},
        sum(outcome.saved for _, outcome in outcomes),
        made.ids,
        tuple(dict.fromkeys(note for _, outcome in outcomes for note in outcome.notes)),
    )


def _emit(made: _Assembly, graph: Graph, piece: Piece, outcome: Outcome, i: int, at: dict[int, int]) -> int:
    """Add a node of a planned piece, after those that planning has put before it."""
    if i in at:
        return at[i]
    node = outcome.graph[i]
    start = piece.start_of(node)
    if start in piece.outside and i == outcome.here[piece.local[start]]:
        return made.ids[start]
    operands = tuple(_emit(made, graph, piece, outcome, o, at) for o in node.operands)
    real = graph[start]
    at[i] = made.add(replace(node, name=real.name, kernel=real.kernel, source=real.source, scope=real.scope), operands)
    return at[i]


def _moved(graph: Graph, pattern: Pattern, at: Mapping[int, int], outside: Mapping[int, int]) -> Pattern | None:
    """Return a piece's pattern in the whole graph, less the numbers that it makes for itself: those it reads for
    now.
    """
    nodes = frozenset(at[i] for i in pattern.nodes if i in at)
    if not nodes:
        return None
    ids = {**outside, **at}
    return replace(
        pattern,
        nodes=nodes,
        bindings={ids[i]: b for i, b in pattern.bindings.items() if i in ids},
        inputs=inputs_of(graph, nodes),
        outputs=outputs_of(graph, nodes),
    )
