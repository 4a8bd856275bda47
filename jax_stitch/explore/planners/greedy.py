"""The greedy plan of a whole graph: the best pattern first, until none is worth a kernel."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.explore.outcome import Outcome, outcome_of
from jax_stitch.explore.search import Search
from jax_stitch.explore.thread_loops import ThreadLoops
from jax_stitch.graph.model import Graph

LARGEST = 4000
"""Nodes of the largest graph that is searched so: the time grows with the square of their number."""


def choose(graph: Graph, loops: ThreadLoops, device: Device) -> Outcome | None:
    """What the greedy search takes; ``None`` where the graph is too large for it."""
    if len(graph) > LARGEST:
        return None
    search = Search(graph, device, loops)
    search.complete()
    return outcome_of(search)
