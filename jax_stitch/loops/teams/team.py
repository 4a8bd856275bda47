"""Loops whose rows are each worked on by a team of threads: a block per group of rows, or one for the whole problem.

Where an iteration needs more of a row than one thread can hold (the hidden state of a recurrent cell, the weights that
a training loop carries), a team of threads caches the carried values, and what an iteration reduces, where all of its
threads can read them, and goes through an iteration in sweeps with a barrier after each. Teams never wait for each
other: a row needs nothing of the rows of other teams. A problem with no such rows has one team.

One team alone may be spread over the blocks of a whole launch (``TeamLoop.blocks``): what it caches is then in global
memory, and a barrier of all blocks stands where those of one block would wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, prod
from types import MappingProxyType

from jax_stitch.analysis import copies
from jax_stitch.analysis.accesses import CACHED, COMPUTED, LEFT_OUT, LOADED, Element, View, Walk, walk
from jax_stitch.analysis.binding import covers, inner_sizes, is_uniform, position_in
from jax_stitch.analysis.contraction import contraction, initials, one_literal, reason_not_summed, step_of
from jax_stitch.analysis.maps import STEP
from jax_stitch.analysis.patterns.nest import LIKELY_SHARE, LIKELY_TRIPS, UNKNOWN_TRIPS
from jax_stitch.analysis.patterns.sweeps import elements_at
from jax_stitch.analysis.patterns.team import Carried, Stacked, TeamLoop
from jax_stitch.analysis.support import reason_unsupported
from jax_stitch.analysis.terms import steps_of, terms_of
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.indices.variables import row_index
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY
from jax_stitch.loops.carried import Roles, roles_of
from jax_stitch.loops.rewrites.tested_last import is_tested_last
from jax_stitch.loops.scatter import scatter_reason
from jax_stitch.loops.teams.caching import asking, worth_caching
from jax_stitch.loops.teams.guards import guarded
from jax_stitch.loops.teams.kept_teams import Made, kept
from jax_stitch.loops.teams.late import late
from jax_stitch.loops.teams.placed_rows import placed_values, written_by
from jax_stitch.loops.teams.team_splits import splits_of

MOST_ROWS, FEW_ROWS = 32, 8
"""Rows of a team on a CPU at most; and where those are no faster, which are more to share out, and cache less."""

REUSED = 4
"""Readers of a value from which on it is cached rather than computed for each of them."""


PRODUCTS_PER_ELEMENT = 4
"""Multiplications of a product that take a CPU as long as another element: in blocks they wait for no memory."""


def elements_of(loop: TeamLoop) -> int:
    """Return about how many elements an iteration of one team computes and reduces."""
    elements = 0
    for i, binding in loop.intermediates.items():
        elements += prod(inner_sizes(binding)) * _steps_of_element(loop, i)
    elements += sum(loop.likely_trips * elements_of(loop) for loop in loop.inner.values())
    written = [c.binding for c in loop.carried if not c.placed] + [p.binding for _, p in loop.placed.values()]
    return elements + sum(8 * prod(inner_sizes(binding)) for binding in written)


def _steps_of_element(loop: TeamLoop, intermediate: int) -> int:
    made = contraction(loop.body, intermediate)
    if made is None:
        return 8
    steps = prod(steps_of(loop.body, made))
    return ceil(steps / PRODUCTS_PER_ELEMENT) if made.op == "dot" else steps


MOST_STATEMENTS = 8000
"""Statements of a loop's body, over all that it caches and writes: compilers take longer than linearly."""


class NotForTeams(Exception):
    """Why a loop cannot run in teams, as the end of a sentence."""


def team_loop(
    graph: Graph, node: Node, device: Device, *, single: bool = False, most: int = MOST_ROWS, step: str = "step"
) -> TeamLoop:
    """Return how the parts of a ``while`` of ``graph`` are laid out for teams, or for a ``single`` one; those of a CPU
    have so many rows at ``most``. Its iterations are counted by ``step``.

    Raises ``NotForTeams``.
    """

    def make() -> Made:
        try:
            return _team_loop(graph, node, device, single, most, step)
        except NotForTeams as why:
            return str(why)

    made = kept(graph, node, (device, single, most, step), make)
    if isinstance(made, str):
        raise NotForTeams(made)
    return made


def _team_loop(graph: Graph, node: Node, device: Device, single: bool, most: int, step: str) -> TeamLoop:
    roles = roles_of(graph, node, step=step)
    if roles is None or (roles.trips is None and not is_tested_last(node)):
        raise NotForTeams("a loop of unknown length, or whose constant values are read outside")
    if (tested := guarded(roles)) is not None:
        try:
            return _laid_out(tested[0], tested[1], node, device, single, most, step)
        except NotForTeams:
            pass  # The truth may well differ inside a team's rows.
    return _laid_out(roles, None, node, device, single, most, step)


def _laid_out(
    roles: Roles, guard: int | None, node: Node, device: Device, single: bool, most: int, step: str
) -> TeamLoop:
    """Return how the parts of a loop are laid out. Raises ``NotForTeams``."""
    body = roles.body
    roots = [body.results[k] for k in roles.values] + [u for _, u, _ in roles.stacked]
    tested = set() if guard is None else {guard}
    roots += tested
    read = needed(body, roots)
    inner = inner_loops(body, read, device, step)
    single = single or roles.trips is None or bool(inner)
    placed = {} if inner else placed_values(body, roles.values, device)
    intermediates, apart = intermediates_of(body, roots, device, inner)
    intermediates = tuple(
        sorted({*intermediates, *tested, *(u for updates in placed.values() for u in updates.readers if u in read)})
    )
    roots += [body[i].operands[1] for updates in placed.values() for i in updates.nodes]
    arrays = MappingProxyType({i: outside for i, outside in roles.arrays.items() if i in read})
    reason: NotForTeams | None = None
    for rows, bindings in splits_of(body, roles.values, roots, intermediates, device, most):
        if (single or placed) and rows > 1:
            continue
        carried = tuple(
            Carried(
                body.parameters[k],
                body.results[k],
                node.operands[k],
                roles.results.get(k),
                bindings[body.parameters[k]],
                written_by(body, placed[k], bindings) if k in placed else (),
            )
            for k in roles.values
        )
        stacked = tuple(Stacked(u, starts, roles.results[k] or 0, bindings[u]) for k, u, starts in roles.stacked)
        bound = MappingProxyType({i: bindings[i] for i in intermediates})
        loop = TeamLoop(
            *(body, roles.trips, rows, carried, stacked, arrays, bound),
            apart=apart,
            in_pieces=device.target.lanes_are_vectors,
            test=roles.condition,
            inner=MappingProxyType(inner),
            step=step,
            unknown_trips=node.attributes.get(LIKELY_TRIPS, UNKNOWN_TRIPS),
            guard=guard,
            share=1.0 if guard is None else node.attributes.get(LIKELY_SHARE, 1.0),
        )
        try:
            check(loop)
        except NotForTeams as why:
            reason = why
            continue
        return loop
    raise reason or NotForTeams("no value is carried")


MOST_ELEMENTS = 1 << 16
"""Of what a loop in a loop's body leaves: it stays in the team's own memory."""


def inner_loops(body: Graph, alive: Collection[int], device: Device, step: str) -> dict[int, TeamLoop]:
    """Return the loops in a body, each for the one thread that goes through all of it; elsewhere than on a CPU there
    are none.

    Raises ``NotForTeams``.
    """
    if not device.target.runs_sweeps_in_turn:
        return {}
    loops = {n.id: n for n in body.nodes if n.op == "while" and n.id in alive}
    inner = {i: team_loop(body, n, device, single=True, step=f"{step}_{i}") for i, n in loops.items()}
    for i in loops:
        if any(isinstance(t, TensorType) and t.size > MOST_ELEMENTS for t in (body[u].type for u in body.users[i])):
            raise NotForTeams("a loop in whose steps another leaves large arrays")
    return inner


def inner_reads(loop: TeamLoop, body: Graph) -> set[int]:
    """Return what a loop in a body reads of it: its initial values, and the arrays of its iterations."""
    starts = {c.initial for c in loop.carried if one_literal(body, c.initial) is None}
    return starts | set(loop.arrays.values())


def intermediates_of(
    body: Graph, roots: Sequence[int], device: Device, inner: Mapping[int, TeamLoop]
) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return the values that an iteration caches for its team, ascending, and those of them that are computed apart
    from what reads them: see ``TeamLoop``. What loops in the body read and leave is among them.
    """
    alive = needed(body, roots)
    intermediates: set[int] = set()
    for i, loop in inner.items():
        intermediates |= {o for o in inner_reads(loop, body) if body[o].op != "parameter"}
        intermediates |= {i} if isinstance(body[i].type, TensorType) else alive.intersection(body.users[i])
    for i in alive:
        node = body[i]
        if contraction(body, i) is not None and isinstance(node.type, TensorType):
            intermediates.add(i)
        if node.op == "scatter" and scatter_reason(body, node) is None:
            intermediates.add(i)
        if node.op == "dot":
            sources = {_unrounded(body, made_by(body, o)) for o in node.operands}
            intermediates |= {o for o in sources if not _is_read(body, o)}
        if node.op == "broadcast" and node.tensor.size >= REUSED * body[node.operands[0]].tensor.size:
            source = made_by(body, node.operands[0])
            if _is_heavy(body, source):
                intermediates.add(source)
    apart: set[int] = set()
    if device.target.lanes_are_vectors:
        intermediates |= _made_of_products(body, alive, intermediates)
        intermediates |= worth_caching(body, alive, roots, intermediates)
        apart = asking(body, alive) & intermediates
        between, waiting = late(body, alive, roots, intermediates)
        intermediates |= between
        apart |= waiting
    return tuple(sorted(intermediates)), frozenset(apart)


def _made_of_products(body: Graph, alive: Collection[int], intermediates: Collection[int]) -> set[int]:
    """Return sums of products and the like, which are cached in place of the products that only they read."""
    sums: set[int] = set()
    for i in intermediates:
        here, node = i, body[i]
        while node.op in ("dot", *ELEMENTWISE):
            readers = [body[u] for u in body.users[here] if u in alive]
            if len(readers) != 1 or readers[0].op not in ELEMENTWISE or readers[0].op in HEAVY:
                break
            if not isinstance(readers[0].type, TensorType) or readers[0].tensor != body[i].tensor:
                break
            node = readers[0]
            here = node.id
        if body[i].op == "dot" and here != i:
            sums.add(here)
    return sums


def needed(body: Graph, roots: Iterable[int]) -> set[int]:
    """Return all that these values of a body are made of, with themselves."""
    reached: set[int] = set()
    waiting = list(roots)
    while waiting:
        i = waiting.pop()
        if i not in reached:
            reached.add(i)
            waiting += body[i].operands
    return reached


def made_by(body: Graph, i: int) -> int:
    """Return the node that computes a value which others merely move."""
    while body[i].op in ("reshape", "transpose", "broadcast", "slice", "reverse", "dynamic-slice"):
        i = body[i].operands[0]
    return i


def _unrounded(body: Graph, i: int) -> int:
    """Return what a product's factor is rounded from, if others read that too: it is cached once, for all of them."""
    if body[i].op != "reduce-precision":
        return i
    source = made_by(body, body[i].operands[0])
    return source if len(body.users[source]) > 1 and not _is_read(body, source) else i


def _is_heavy(body: Graph, i: int) -> bool:
    """Return whether computing a value from what is cached or read takes an operation that is worth doing once."""
    seen: set[int] = set()
    waiting = [i]
    while waiting:
        here = waiting.pop()
        node = body[here]
        if node.op in HEAVY:
            return True
        if here not in seen and contraction(body, here) is None and node.op != "scatter":
            seen.add(here)
            waiting += node.operands
    return False


def _is_read(body: Graph, i: int) -> bool:
    """Return whether a value is only read: from an array, from a carried value, from a constant."""
    return body[i].op in ("parameter", "constant", "iota", STEP)


class _Iteration(View):
    """What an iteration of a team computes of some elements, and what it finds ready."""

    def __init__(
        self, body: Graph, starts: Collection[Element], cached: Collection[int], arrays: Collection[int]
    ) -> None:
        super().__init__(body)
        self._starts, self._cached, self._arrays = starts, cached, arrays

    def kind(self, element: Element) -> str:
        i, _ = element
        node = self.graph[i]
        if i in self._cached and (element not in self._starts or node.op == "parameter" or self._is_left(node)):
            return CACHED
        if i in self._arrays:
            return LOADED
        if node.op in ("constant", "iota", STEP):
            return LEFT_OUT
        reason = "part of another operation" if node.op in ("dot", "reduce") else _reason(self.graph, node)
        if reason is not None:
            raise NotForTeams(f"{node.name or node.op} in its body is {reason}")
        return COMPUTED

    def _is_left(self, node: Node) -> bool:
        """Return whether a loop leaves a value, which nothing else computes."""
        return node.op == "while" or (node.op == "get-tuple-element" and self.graph[node.operands[0]].op == "while")


def reach(body: Graph, starts: Iterable[Element], cached: Collection[int], arrays: Collection[int]) -> Walk:
    """Follow elements down to what is cached or outside, the starts themselves first; raises ``NotForTeams``."""
    first = tuple(starts)
    return walk(_Iteration(body, frozenset(first), cached, arrays), first)


def _reason(body: Graph, node: Node) -> str | None:
    """Return why a team computes no elements of a node; of what a step writes into a small array it computes all."""
    return None if node.op == "dynamic-update-slice" else reason_unsupported(body, node)


def check(loop: TeamLoop) -> None:
    """Raise ``NotForTeams`` where an iteration has an operation that no team computes, or reads another's elements."""
    body, cached = loop.body, loop.cached
    row = row_index(loop.rows)
    roots = [(c.next, c.binding) for c in loop.carried if not c.placed]
    roots += [(s.update, s.binding) for s in loop.stacked]
    placed = [p for _, p in loop.placed.values()]
    roots += [(p.update, p.binding) for p in placed] + [(i, ()) for p in placed for i in p.starts]
    statements, made_by_inner = 0, loop.made_by_inner
    if loop.guard is not None and prod(inner_sizes(loop.intermediates[loop.guard])) != 1:
        raise NotForTeams("a loop whose rows go on for different numbers of steps")
    for i, binding in [*loop.intermediates.items(), *roots]:
        if not (is_uniform(binding) or covers(binding, loop.rows)):
            raise NotForTeams(f"{body[i].name or body[i].op} in its body is no value of single rows")
        if i in made_by_inner:
            continue  # By one thread, for which nothing is in another's rows.
        index = elements_at(loop, binding)
        made = contraction(body, i) if i in loop.intermediates else None
        if made is not None:
            reason = reason_not_summed(body, made)
            if reason is not None:
                raise NotForTeams(f"{made.name or made.op} in its body is {reason}")
            _check_initial_values(loop, made)
            starts = terms_of(body, made, index, step_of(body, made))
            walked = reach(body, [e for e in starts if e[0] not in cached], cached, loop.arrays)
            statements += _statements(body, starts, walked)
            elements = {*walked.cached, *(e for e in starts if e[0] in cached)}
        elif body[i].op == "scatter" and i in loop.intermediates:
            reason = scatter_reason(body, body[i]) if loop.rows == 1 else "a scatter to data-dependent places"
            if reason is not None:
                raise NotForTeams(f"{body[i].name or body[i].op} in its body is {reason}")
            continue  # Of a single team: whatever it adds up is its own.
        elif i in cached and i not in loop.intermediates:
            elements = {(i, index)}
        else:
            walked = reach(body, [(i, index)], set(cached) - {i} if i in loop.intermediates else cached, loop.arrays)
            statements += _statements(body, [(i, index)], walked)
            elements = set(walked.cached)
        if statements > MOST_STATEMENTS:
            raise NotForTeams("a loop whose body takes too many statements to be written out")
        for other, at in elements:
            if position_in(cached[other], row, at) is None:
                raise NotForTeams(f"{body[other].name or body[other].op} in its body is needed by other rows")


def _check_initial_values(loop: TeamLoop, made: Node) -> None:
    """Raise ``NotForTeams`` where a reduction starts from what the loop's steps make, and has to wait for it."""
    starts = [(o, ()) for o in initials(made)]
    walked = reach(loop.body, starts, loop.cached, loop.arrays)
    read = {*initials(made), *(o for i, _ in walked.computed for o in loop.body[i].operands)}
    if walked.cached or any(loop.body[i].op == STEP for i in read):
        raise NotForTeams(f"{made.name or made.op} in its body starts from what its steps compute")


def _statements(body: Graph, starts: Sequence[Element], walked: Walk) -> int:
    """Return how many statements compute some elements: what is chosen by the index is written once for each choice."""
    written = copies.counts(body, starts, walked.computed)
    return MOST_STATEMENTS + 1 if max(written.values(), default=0) > copies.MOST else written.total()
