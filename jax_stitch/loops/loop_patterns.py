"""The choice of loops that become kernels: those that a thread runs by itself, and those that are estimated faster in
teams than as XLA runs them.
"""

from __future__ import annotations

from types import MappingProxyType

from jax_stitch.analysis.contraction import one_literal
from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.results import Results
from jax_stitch.devices import Device
from jax_stitch.graph.model import STREAMED, Graph, Node
from jax_stitch.graph.opcodes import python_call
from jax_stitch.loops.cost.team_cost import nest_seconds, nests_gain, team_seconds
from jax_stitch.loops.loop_passes import ALL_LOOPS, IMPROVING, NORMALISING, SPLITTING, UNROLLING, Loop, whiles
from jax_stitch.loops.products import sums_of
from jax_stitch.loops.short_loops import SHORT
from jax_stitch.loops.teams.epilogue import with_epilogue
from jax_stitch.loops.teams.sharing import cached_bytes
from jax_stitch.loops.teams.team import NotForTeams, team_loop
from jax_stitch.loops.teams.team_choice import FASTER_AS_KERNELS, best_team
from jax_stitch.loops.thread_loops import ThreadLoops, thread_loops

TEAM_GAIN = 1.05
"""The factor by which teams have to be estimated faster than threads alone, whose values stay in registers."""


THREAD_GAIN = 0.5
"""The factor by which loops in threads of many rows have to be estimated faster than XLA's kernels. It is below 1,
since their estimate is twice their real time, or more.
"""


def stitched_loops(graph: Graph, device: Device) -> ThreadLoops:
    """Return a pattern for each loop of ``graph`` that is worth a kernel: a thread for each row, else a team."""
    in_threads = _in_threads(graph, device, are_fit=True)
    taken = {i for p in in_threads.patterns for i in p.nodes}
    patterns, refused = list(in_threads.patterns), dict(in_threads.refused)
    for node in graph.nodes:
        if node.op != "while" or node.id in taken or refused.get(node.id) == SHORT:
            continue
        if (call := python_call(node.graphs["body"]) or python_call(node.graphs["condition"])) is not None:
            where = f" at {call.source}" if call.source else ""
            refused[node.id] = f"a loop that calls back to Python in its steps ({call.name}{where})"
            continue
        try:
            loop = best_team(graph, node, node.graphs["body"], device)
        except NotForTeams as error:
            why = _why_not(graph, node, device) or str(error)
            refused[node.id] = f"{refused[node.id]}; {why}" if node.id in refused else why
            continue
        refused.pop(node.id, None)
        inputs = set(loop.arrays.values()) | {c.initial for c in loop.carried if one_literal(graph, c.initial) is None}
        outputs = [c.result for c in loop.carried if c.result is not None] + [s.result for s in loop.stacked]
        nodes = frozenset({node.id, *graph.users[node.id]})
        pattern = Pattern(nodes, loop.rows, {}, tuple(sorted(inputs)), tuple(sorted(outputs)), loop=loop)
        if STREAMED in node.attributes:
            pattern = with_epilogue(graph, pattern, {i for p in patterns for i in p.nodes})
        patterns.append(pattern)
    return ThreadLoops((*patterns, *sums_of(graph, patterns, device)), MappingProxyType(refused))


def _why_not(graph: Graph, node: Node, device: Device) -> str:
    """Return the reason why a loop has no teams even when it is normalised, or an empty string."""
    loop = _normalised(graph, node, device)
    try:
        best_team(loop.graph, loop.node, loop.body, device)
    except NotForTeams as why:
        return str(why)
    return ""


def _normalised(graph: Graph, node: Node, device: Device) -> Loop:
    return NORMALISING.run(Loop(graph, whiles(graph).index(node)), device)


def seconds_in_teams(graph: Graph, node: Node, device: Device) -> float | None:
    """Return the seconds of a loop in teams; None where it is estimated faster as XLA runs it, or no team runs it."""
    try:
        loop = best_team(graph, node, node.graphs["body"], device)
    except NotForTeams:
        return None
    return loop.likely_trips * team_seconds(loop, device)


def bytes_in_teams(graph: Graph, node: Node, device: Device) -> int:
    """Return about how many bytes a team of a loop caches; 0 where no team runs it."""
    try:
        return cached_bytes(best_team(graph, node, node.graphs["body"], device))
    except NotForTeams:
        return 0


_threads: Results[Device, tuple[ThreadLoops, list[Pattern]]] = Results()


def _in_threads(graph: Graph, device: Device, *, are_fit: bool = False) -> ThreadLoops:
    """Return the loops that a thread runs by itself, without those that are faster in teams on a CPU: a thread computes
    its elements one by one, a team of one thread in vectors, once for all rows. With ``are_fit`` the loops are already
    normalised, and only those that teams can really run are left out.
    """
    loops, for_teams = _threads.get(graph, device, lambda: _by_time(graph, device))
    if are_fit and for_teams:
        for_teams = [p for p in for_teams if _are_worth_teams(graph, p, device)]
    in_threads = tuple(p for p in loops.patterns if not any(p is other for other in for_teams))
    return ThreadLoops(in_threads, loops.refused)


def _by_time(graph: Graph, device: Device) -> tuple[ThreadLoops, list[Pattern]]:
    """Return the loops that a thread can run by itself, and those of them that are faster in teams."""
    loops = thread_loops(graph, device)
    if not device.target.lanes_are_vectors:
        return loops, []
    slower = [p for p in loops.patterns if _is_slower_in_threads(graph, p, device)]
    if slower:
        refused = {node.id: FASTER_AS_KERNELS for p in slower for node in _whiles(graph, p)}
        kept = tuple(p for p in loops.patterns if not any(p is other for other in slower))
        loops = ThreadLoops(kept, MappingProxyType({**loops.refused, **refused}))
    return loops, [p for p in loops.patterns if _is_faster_in_teams(graph, p, device)]


def _are_worth_teams(graph: Graph, pattern: Pattern, device: Device) -> bool:
    """Return whether teams run all loops of a pattern, so that none is left to XLA."""
    return all(seconds_in_teams(graph, node, device) is not None for node in _whiles(graph, pattern))


def _is_slower_in_threads(graph: Graph, pattern: Pattern, device: Device) -> bool:
    gain = nests_gain(graph, _whiles(graph, pattern), _nest(pattern), device)
    return gain < (THREAD_GAIN if pattern.rows > 1 else 1.0)


def _whiles(graph: Graph, pattern: Pattern) -> list[Node]:
    return [graph[i] for i in sorted(pattern.nodes) if graph[i].op == "while"]


def _nest(pattern: Pattern) -> Nest:
    assert isinstance(pattern.loop, Nest)
    return pattern.loop


def _is_faster_in_teams(graph: Graph, pattern: Pattern, device: Device) -> bool:
    """Return whether a pattern is faster in teams, by the work of all cores: both ways distribute rows over them."""
    limit = nest_seconds(_nest(pattern), device) / TEAM_GAIN
    taken = 0.0
    for node in _whiles(graph, pattern):
        try:
            fit = _normalised(graph, node, device)
            loop = team_loop(fit.graph, fit.node, device)
        except NotForTeams:
            return False
        taken += loop.likely_trips * team_seconds(loop, device) * min(loop.rows, device.multiprocessors)
        if taken > limit:
            return False
    return True


def _improved(loop: Loop, device: Device) -> Graph | None:
    """Return the graph with a loop as a team is estimated to run it fastest, with short loops inside it written out or
    not; None where none is to take it.
    """
    unrolled, best, least = UNROLLING.run(loop, device), None, float("inf")
    for tried in (unrolled,) if unrolled is loop else (unrolled, loop):
        normal = NORMALISING.run(tried, device)
        improved = IMPROVING.run(normal, device)
        try:
            team = best_team(improved.graph, improved.node, normal.body, device)
        except NotForTeams:
            continue
        if (seconds := team_seconds(team, device)) < least:
            best, least = improved.graph, seconds
    return best


def prepared(graph: Graph, device: Device) -> Graph:
    """Return the graph in which the loops that are worth running in teams, and that no thread can run by itself, are
    normalised: sums that they carry are moved out, and what is computed for their iterations is moved in.
    """
    if not whiles(graph):
        return graph
    graph = ALL_LOOPS.run(graph, device)
    rewritten = SPLITTING.run(graph, device)
    single = {i for p in _in_threads(rewritten, device).patterns for i in p.nodes}
    ready = single | {node.id for node in whiles(rewritten) if STREAMED in node.attributes}
    numbers = [number for number, node in enumerate(whiles(rewritten)) if node.id not in ready]
    is_fit = False
    for number in numbers:
        improved = _improved(Loop(rewritten, number), device)
        if improved is not None:
            rewritten, is_fit = improved, True
    # Products that XLA has joined stay joined where no loop gains from separate ones.
    return rewritten if is_fit else graph
