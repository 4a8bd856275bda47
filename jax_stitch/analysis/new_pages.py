"""Results so large that their memory is new at every call: the C library gives it back to the system when it is freed
(mallopt(3), M_MMAP_THRESHOLD). The system makes each page of it when it is touched for the first time, which takes
longer than the kernel that touches it, unless pages are huge. Our kernels ask for huge ones
(``backend/launch/handler.cc``), XLA's do not.
"""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph
from jax_stitch.graph.opcodes import IN_PLACE


def saved_on_new_pages(size: int, device: Device) -> float:
    """Return seconds of a call that our kernel saves where it is the first to write a result of so many bytes, whose
    memory no argument had.
    """
    least, seconds = device.target.new_pages
    return seconds * size if size >= least else 0.0


def saved_on_results(graph: Graph, nodes: Collection[int], device: Device) -> float:
    """Return the same for all results that nodes of a kernel are the first to write."""
    if not device.target.new_pages[1]:
        return 0.0
    saved = ((i, saved_on_new_pages(node_bytes(graph[i]), device)) for i in nodes)
    return sum(seconds for i, seconds in saved if seconds and _is_new(graph, i, nodes))


def _is_new(graph: Graph, i: int, nodes: Collection[int]) -> bool:
    """Return whether a value is a result in new memory, or what is made of it in its place is one. The other ``nodes``
    of its kernel may read it.
    """
    while i not in graph.result_set:
        readers = [u for u in graph.users[i] if u not in nodes]
        if len(readers) != 1 or graph[readers[0]].op not in IN_PLACE or graph[readers[0]].operands[0] != i:
            return False
        i = readers[0]
    donated = set(graph.layouts.homes.values())
    return any(r == i and k not in donated for k, r in enumerate(graph.results))
