"""Loops joined with the kernels around them: what is made for a loop, the loop, and what is made of its
results are phases of one launch (see ``grid_composition``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.analysis.reach import Reach
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.grid_composition import compose, in_phases
from jax_stitch.fusion.launches.leftover_kernels import as_patterns
from jax_stitch.fusion.launches.packing import Kernel, pack_loops
from jax_stitch.fusion.launches.quotient import can_be_launched, launched
from jax_stitch.graph.model import STREAMED, Graph
from jax_stitch.loops.teams.sharing import cached_bytes

MOST_ROWS = 256
"""Rows of a loop in threads for each multiprocessor, up to which all of them run at a time."""


MOST_TEAMS = 2
"""Teams that a multiprocessor has at a time, of as many threads as a block may have."""


def with_loops(graph: Graph, loops: Sequence[Pattern], kernels: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """Return all kernels of a graph: ``kernels``, and those of ``loops``, joined where a loop reads what another writes
    or the other way round.
    """
    packed = pack_loops(graph, loops, kernels, device)
    if not device.target.packs_launches or not packed:
        return (*kernels, *packed)
    all_kernels = [*kernels, *packed]
    # Their blocks differ: they share no launch.
    for are_loops in (
        lambda kernel: _are_teams(graph, kernel, device),
        lambda kernel: any(_is_joinable(p, device) for p in kernel),
    ):
        loops_here = [k for k in all_kernels if are_loops(k)]
        apart = [k for k in all_kernels if k not in loops_here and any(p.loop for p in k)]
        others = [k for k in all_kernels if k not in loops_here and k not in apart]
        around = _possible(graph, [*others, *loops_here, *apart], _around(graph, loops_here, [*others, *apart], device))
        groups = [*others, *loops_here, *([p] for p in around)]
        joined = compose(groups, *launched(graph, [*groups, *apart]), device)
        small = {p.nodes for p in around}
        all_kernels = [in_phases(group) for group in joined]  # Others than loops may have been joined as well.
        # What found no loop stays with XLA.
        all_kernels = [*(k for k in all_kernels if not all(p.nodes in small for p in k)), *apart]
    return tuple(all_kernels)


def _are_teams(graph: Graph, kernel: Kernel, device: Device) -> bool:
    """Return whether a kernel has loops in teams; of loops over tiles, which have more to compute than others have to
    wait, only those whose teams are resident all at a time: of a launch's phases, that with the most shared memory
    decides how many are.
    """
    teams = [p.loop for p in kernel if isinstance(p.loop, TeamLoop)]
    if not teams or not any(STREAMED in graph[i].attributes for p in kernel for i in p.nodes):
        return bool(teams)
    together = min(MOST_TEAMS, device.blocks_with_shared(max(map(cached_bytes, teams))))
    return sum(t.rows for t in teams) <= device.multiprocessors * together


def _is_joinable(pattern: Pattern, device: Device) -> bool:
    """Return whether a loop has rows in threads, and few enough that each thread has the registers it wants."""
    return isinstance(pattern.loop, Nest) and 1 < pattern.rows <= MOST_ROWS * device.multiprocessors


def _around(graph: Graph, loops: Sequence[Kernel], others: Sequence[Kernel], device: Device) -> list[Pattern]:
    """Return patterns for each of XLA's kernels that a loop reads from, or that reads from a loop, and for each
    transpose between: free to a loop of XLA, which reads in any layout, and a launch before a kernel, which reads rows.
    """
    patterns = [p for kernel in (*loops, *others) for p in kernel]
    covered = {i for p in patterns for i in p.nodes}
    written = {i for p in patterns for i in p.outputs}
    touching = {i for kernel in loops for p in kernel for i in p.inputs}
    touching |= {u for kernel in loops for p in kernel for i in p.outputs for u in graph.users[i]}
    kernels: dict[str, set[int]] = defaultdict(set)
    for n in graph.nodes:
        if n.id not in covered and (n.kernel or n.op == "transpose") and not is_rematerializable(n):
            kernels[n.kernel or f"%{n.id}"].add(n.id)
    neighbours: list[Pattern] = []
    reach = _reach(graph, patterns)
    for members in kernels.values():
        made = as_patterns(graph, members, reach, device) if members & touching else []
        if all(i in written or i not in covered for p in made for i in p.inputs):
            neighbours += made
    return neighbours


def _reach(graph: Graph, patterns: Sequence[Pattern]) -> Reach:
    """Return what depends on what, patterns as one, but those between whose nodes stands what they rematerialise."""
    reach = Reach(graph)
    for p in patterns:
        if reach.is_convex(p.nodes):
            reach = reach.contracted(p.nodes)
    return reach


def _possible(graph: Graph, groups: Sequence[Kernel], around: Sequence[Pattern]) -> list[Pattern]:
    """Return those of ``around`` that wait for no kernel which waits for them."""
    possible: list[Pattern] = []
    for p in around:
        if can_be_launched(graph, [*groups, *([q] for q in (*possible, p))]):
            possible.append(p)
    return possible
