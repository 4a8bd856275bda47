"""The pattern set of the 0/1 program: substitution and exploratory fusion (2019 paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jax_stitch.analysis.reach import bits, members_of
from jax_stitch.fusion.planners.candidates import candidates
from jax_stitch.fusion.planners.space import Scored, Space
from jax_stitch.graph.model import Graph, Node
from jax_stitch.util.groups import Groups

TOP = 6
"""Candidates of each vertex, twice those of the beam."""

BUDGET = 40
"""Patterns that are tried from one seed."""

SEEDS = 64
"""Seeds of exploratory fusion, those with the largest values."""

BRANCHES = 2
"""Expansions of a pattern that are explored further, the best ones."""


def pattern_set(space: Space) -> tuple[Scored, ...]:
    """Return all patterns worth a kernel that the generators find, the most saving first."""
    by_nodes = {p.nodes: p for p in candidates(space, TOP)}
    for generator in (substitution, exploratory):
        by_nodes |= {p.nodes: p for p in generator(space) if p.is_worth}
    return tuple(sorted(by_nodes.values(), key=lambda p: (-p.seconds, p.nodes)))


def substitution(space: Space) -> Iterator[Scored]:
    """Return everything between operations that are never fused with others, in as few patterns as possible.

    In steps with more and more such operations: library calls, then reductions to scalars, across columns, and all.
    """
    graph, free = space.graph, space.search.free
    steps = (
        lambda node: False,
        lambda node: node.op == "reduce" and _remaining(graph, node) == 0,
        lambda node: node.op == "reduce" and not _is_of_rows(graph, node),
        lambda node: node.op == "reduce",
    )
    done: set[int] = set()
    for is_partition in steps:
        for between in _between(graph, free, {i for i in free if is_partition(graph[i])}):
            nodes = bits(between)
            if nodes not in done:
                done.add(nodes)
                yield from space.largest(nodes)


def _remaining(graph: Graph, node: Node) -> int:
    return len(graph[node.operands[0]].tensor.dims) - len(node.attributes["dimensions"])


def _is_of_rows(graph: Graph, node: Node) -> bool:
    """Return whether a reduction is over an array's last dimensions."""
    remaining = _remaining(graph, node)
    return min(node.attributes["dimensions"], default=remaining) >= remaining


def _between(graph: Graph, free: Collection[int], partition: Collection[int]) -> list[set[int]]:
    """Return the free nodes in connected groups that have the same number of partition operations before them."""
    step: dict[int, int] = {}
    for node in graph.nodes:
        ends = node.id not in free or node.id in partition
        step[node.id] = max((step[o] for o in node.operands), default=0) + ends
    inside = {i: None for i in free if i not in partition}
    groups = Groups(inside)
    for i in inside:
        groups.join(i, *(o for o in graph[i].operands if o in inside and step[o] == step[i]))
    return [set(group) for group in groups.all() if len(group) > 1]


def exploratory(space: Space) -> Iterator[Scored]:
    """Grow patterns from seeds with large values: take producers and consumers in one by one, and go on from the best
    expansions.
    """
    sizes = {atom: space.rank(atom) for atom in space.atoms}
    seeds = sorted(sizes, key=lambda atom: (sizes[atom], atom))[:SEEDS]
    owner = {i: atom for atom in space.atoms for i in members_of(atom)}
    seen: set[int] = set()
    for seed in seeds:
        waiting, tried = [seed], 0
        while waiting and tried < BUDGET:
            pattern = waiting.pop()
            expanded = []
            for atom in _around(space, pattern, owner):
                wider = pattern | atom
                if wider in seen:
                    continue
                seen.add(wider)
                tried += 1
                scored = space.scored(wider)
                if scored is not None:
                    yield scored
                    expanded.append(scored)
            expanded.sort(key=lambda p: p.seconds)
            waiting += [p.nodes for p in expanded[-BRANCHES:]]


def _around(space: Space, pattern: int, owner: dict[int, int]) -> list[int]:
    """Return the atoms that produce or consume values of a pattern."""
    neighbours: dict[int, None] = {}
    for i in members_of(pattern):
        for other in (*space.graph[i].operands, *space.graph.users[i]):
            if other in owner and not pattern >> other & 1:
                neighbours[owner[other]] = None
    return list(neighbours)
