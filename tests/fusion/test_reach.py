"""Ancestors, descendants and convexity against networkx, on random graphs with contracted groups."""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.analysis.reach import Reach
from jax_stitch.graph import Graph, Node, TensorType


def random_graph(rng: Random, size: int) -> Graph:
    nodes = []
    for i in range(size):
        operands = tuple(sorted(rng.sample(range(i), min(i, rng.randrange(3)))))
        nodes.append(Node(i, "add" if operands else "parameter", TensorType("f32", ()), operands))
    return Graph("random", tuple(nodes), (), ())


def contracted(graph: Graph, groups: list[set[int]]) -> tuple[nx.DiGraph, dict[int, int]]:
    head = {i: i for i in range(len(graph))}
    for group in groups:
        head |= {i: min(group) for i in group}
    edges = [(head[o], head[n.id]) for n in graph.nodes for o in n.operands if head[o] != head[n.id]]
    found = nx.DiGraph(edges)
    found.add_nodes_from(head.values())
    return found, head


def expanded(heads: set[int], head: dict[int, int]) -> set[int]:
    return {i for i, h in head.items() if h in heads}


def some_groups(rng: Random, graph: Graph) -> list[set[int]]:
    """Disjoint groups that do not depend on each other in a cycle."""
    groups: list[set[int]] = []
    for _ in range(3):
        free = set(range(len(graph))) - set().union(*groups)
        group = set(rng.sample(sorted(free), min(len(free), rng.randrange(1, 5))))
        if group and nx.is_directed_acyclic_graph(contracted(graph, [*groups, group])[0]):
            groups.append(group)
    return groups


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(2, 20))
def test_reach_is_that_of_the_contracted_graph(seed: int, size: int) -> None:
    rng = Random(seed)
    graph = random_graph(rng, size)
    groups = some_groups(rng, graph)
    reach = Reach(graph, groups)
    oracle, head = contracted(graph, groups)
    for i in range(size):
        assert set(reach.before(i)) == expanded(nx.ancestors(oracle, head[i]), head)
        assert set(reach.after(i)) == expanded(nx.descendants(oracle, head[i]), head)
    a, b = set(rng.sample(range(size), 1)), set(rng.sample(range(size), min(2, size)))
    near = {h for i in a for h in nx.ancestors(oracle, head[i]) | nx.descendants(oracle, head[i])}
    assert reach.connected(a, b) == bool(expanded(near, head) & b)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(2, 20))
def test_a_convex_part_can_be_contracted(seed: int, size: int) -> None:
    """A kernel that would have to wait for its own result."""
    rng = Random(seed)
    graph = random_graph(rng, size)
    groups = some_groups(rng, graph)
    free = sorted(set(range(size)) - set().union(*groups))
    members = set(rng.sample(free, rng.randrange(len(free) + 1)))
    part = Reach(graph, groups).convex_part(members)
    if members:
        acyclic = nx.is_directed_acyclic_graph(contracted(graph, [*groups, members])[0])
        assert Reach(graph, groups).is_convex(members) == acyclic
    assert part <= members
    assert nx.is_directed_acyclic_graph(contracted(graph, [*groups, part] if part else groups)[0])
    if members and nx.is_directed_acyclic_graph(contracted(graph, [*groups, members])[0]):
        assert part == members, "nothing had to go"


def test_groups_in_a_cycle_are_refused() -> None:
    chain = [Node(i, "add", TensorType("f32", ()), (i - 1,) if i else ()) for i in range(3)]
    with pytest.raises(AssertionError, match="cycle"):
        Reach(Graph("chain", tuple(chain), (), ()), [{0, 2}])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(2, 20))
def test_groups_added_one_by_one(seed: int, size: int) -> None:
    """Also groups that take in whole groups, as when kernels are packed."""
    rng = Random(seed)
    graph = random_graph(rng, size)
    groups = some_groups(rng, graph)
    reach = Reach(graph)
    for group in groups:
        reach = reach.contracted(group)
    if len(groups) > 1:
        both = groups[0] | groups[1]
        if nx.is_directed_acyclic_graph(contracted(graph, [both, *groups[2:]])[0]):
            groups = [both, *groups[2:]]
            reach = reach.contracted(both)
    oracle, head = contracted(graph, groups)
    for i in range(size):
        assert set(reach.before(i)) == expanded(nx.ancestors(oracle, head[i]), head)
        assert set(reach.after(i)) == expanded(nx.descendants(oracle, head[i]), head)
    for a, b in ((i, j) for i in range(size) for j in range(size)):
        assert reach.connected([a], [b]) == (
            head[b] in nx.ancestors(oracle, head[a]) or head[b] in nx.descendants(oracle, head[a])
        )
