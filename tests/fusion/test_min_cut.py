"""Minimum cuts against networkx's, node for node: which of several cheapest cuts it is decides what kernels read."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.fusion.launches.min_cut import Edge, near_side

LARGE = 1 << 40
"""Bytes: sums of these do not fit 32 bits."""


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """From node 0 to the last one; few capacities, so that many cuts cost the same."""
    count = draw(st.integers(2, 12))
    node = st.integers(0, count - 1)
    capacity = st.sampled_from((None, 0, 1, 1, 2, 3, LARGE, LARGE + 1))
    pairs = draw(st.lists(st.tuples(node, node).filter(lambda p: p[0] != p[1]), unique=True, max_size=40))
    return count, [(u, v, draw(capacity)) for u, v in pairs]


@settings(max_examples=300, deadline=None)
@given(networks())
def test_the_cut_is_networkxs(network: tuple[int, list[Edge]]) -> None:
    count, edges = network
    oracle = nx.DiGraph()
    oracle.add_nodes_from(range(count))
    for u, v, capacity in edges:
        oracle.add_edge(u, v, **({} if capacity is None else {"capacity": capacity}))
    try:
        cost, (near, _) = nx.minimum_cut(oracle, 0, count - 1)
    except nx.NetworkXUnbounded:
        with pytest.raises(ValueError, match="may not be cut"):
            near_side(count, edges, 0, count - 1)
        return
    found = near_side(count, edges, 0, count - 1)
    assert found == near
    assert cost == sum(c or 0 for u, v, c in edges if u in found and v not in found)


def test_a_node_is_tried_again_by_another_way() -> None:
    """Two ways share a middle edge that the first leaves half empty."""
    edges = [(0, 1, 3), (0, 2, 3), (1, 3, None), (2, 3, None), (3, 4, 5), (4, 5, None)]
    assert near_side(6, edges, 0, 5) == {0, 1, 2, 3}


def test_long_chains_are_no_recursion() -> None:
    count = 5000
    edges = [(k, k + 1, count - k) for k in range(count - 1)]
    assert near_side(count, edges, 0, count - 1) == set(range(count - 1))
