"""Values that are another's under another shape: a kernel writes one buffer, and whoever reads the other reshapes it,
which moves nothing. On a GPU also those that are transposed for products alone: XLA took the one for the other, in
another layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.support import is_library
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.packing import Kernel
from jax_stitch.graph.model import Graph


def written_once(graph: Graph, kernels: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """Return the kernels without those outputs that only reshape or turn another output of the same kernel.

    What a later phase of the kernel reads stays in memory as it reads it; and of two results of the graph each has a
    buffer of its own, since XLA would copy the one for the other.
    """
    transposes = device.target.products_read_any_layout
    return tuple(_once(graph, kernel, transposes) for kernel in kernels)


def _once(graph: Graph, kernel: Kernel, transposes: bool) -> Kernel:
    read = {i for p in kernel for i in p.inputs}
    kernel = tuple(_by_source(graph, p, read, transposes) for p in kernel)
    written = {i for p in kernel for i in p.outputs}
    results = graph.result_set
    views: set[int] = set()
    for i in sorted(i for p in kernel if _is_flat(p) for i in p.outputs):
        source = next((s for s in _sources(graph, i, transposes) if s in written - views), None)
        if source is not None and i not in read and not (i in results and source in results):
            views.add(i)
    if not views:
        return kernel
    # A pattern that only reshaped has nothing left to do.
    cut = [replace(p, outputs=tuple(i for i in p.outputs if i not in views)) for p in kernel]
    return tuple(p for p in cut if p.outputs)


def _is_flat(pattern: Pattern) -> bool:
    return pattern.loop is None


def _by_source(graph: Graph, pattern: Pattern, read: Collection[int], transposes: bool) -> Pattern:
    """Return the pattern with the value that several of its outputs are views of among them, if it is not."""
    if not _is_flat(pattern):
        return pattern
    views: dict[int, list[int]] = defaultdict(list)
    for i in pattern.outputs:
        last = next((s for s in reversed(_sources(graph, i, transposes)) if s in pattern.nodes), None)
        if i not in read and last is not None:
            views[last].append(i)
    results = graph.result_set
    shared = {s for s, outputs in views.items() if len(outputs) > 1 and len(results & {s, *outputs}) < 2}
    added = shared - set(pattern.outputs)
    return replace(pattern, outputs=(*pattern.outputs, *sorted(added))) if added else pattern


def _sources(graph: Graph, i: int, transposes: bool) -> list[int]:
    """Return the values that ``i`` is a view of, its nearest first; with ``transposes`` also where products alone read
    it.
    """
    sources: list[int] = []
    for_products = transposes and i not in graph.result_set and all(_is_product(graph, u) for u in graph.users[i])
    while graph[i].op == "reshape" or (for_products and graph[i].op == "transpose" and not graph[i].kernel):
        i = graph[i].operands[0]
        sources.append(i)
    return sources


def _is_product(graph: Graph, i: int) -> bool:
    """Return whether a node is a library's product, which reads its operands in whichever order of dimensions they
    lie.
    """
    return graph[i].op == "dot" and is_library(graph, graph[i])
