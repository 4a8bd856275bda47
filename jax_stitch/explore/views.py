"""Values that are another's under another shape: a kernel writes one buffer, and whoever reads the other reshapes it,
which moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jax_stitch.explore.packing import Kernel
from jax_stitch.graph.model import Graph


def written_once(graph: Graph, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The kernels without those outputs that only reshape another output of the same kernel.

    What a later phase of the kernel reads stays in memory as it reads it; and of two results of the graph each has a
    buffer of its own, since XLA would copy the one for the other.
    """
    return tuple(_once(graph, kernel) for kernel in kernels)


def _once(graph: Graph, kernel: Kernel) -> Kernel:
    written = {i for p in kernel for i in p.outputs}
    read = {i for p in kernel for i in p.inputs}
    results = set(graph.results)
    views: set[int] = set()
    for i in sorted(i for p in kernel if p.loop is None and p.team is None for i in p.outputs):
        source = _source(graph, i, written - views)
        if source is not None and i not in read and not (i in results and source in results):
            views.add(i)
    if not views:
        return kernel
    # A pattern that only reshaped has nothing left to do.
    cut = [replace(p, outputs=tuple(i for i in p.outputs if i not in views)) for p in kernel]
    return tuple(p for p in cut if p.outputs)


def _source(graph: Graph, i: int, written: set[int]) -> int | None:
    """The value among those ``written`` that ``i`` is a reshape of."""
    while graph[i].op == "reshape":
        i = graph[i].operands[0]
        if i in written:
            return i
    return None
