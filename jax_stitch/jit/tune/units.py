"""What is measured by itself: a kernel of a plan, or several that cannot go one by one, and the same left to XLA."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.emit import Sources
from jax_stitch.fusion.rewrites.reductions import finished_by, in_one_step
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.opcodes import has_effect
from jax_stitch.pipeline import StitchedKernel
from jax_stitch.util.groups import Groups
from jax_stitch.util.values import replace

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, eq=False)
class Unit:
    """Kernels that stay or go together: one hands another the partial results of a reduction, which XLA has not."""

    numbers: tuple[int, ...]
    """Among the kernels of the plan."""
    kernels: tuple[StitchedKernel, ...]
    graph: Graph
    """Of the plan."""
    inputs: tuple[int, ...]
    """What the kernels read of it."""
    results: tuple[int, ...]
    """What others read of them."""

    @functools.cached_property
    def own_graph(self) -> Graph:
        """Return the plan's graph, with the same ids: ``inputs`` are its parameters, ``results`` its results. Made when
        first asked for: who leaves kernels out by their times does not ask.
        """
        return _own_graph(self.graph, self.inputs, self.results)

    @property
    def by_xla(self) -> Graph:
        """Return the same without a trace of the kernels: reductions are in one step again."""
        steps = [i for k in self.kernels for p in k.scheduled.parts for i in p.pattern.nodes]
        return in_one_step(self.own_graph, [i for i in steps if self.own_graph[i].op == PARTIAL])

    @property
    def arguments(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the types of the parameters."""
        import jax  # To measure them: to leave some out takes none.

        types = (self.own_graph[i].tensor for i in self.own_graph.parameters)
        return tuple(jax.ShapeDtypeStruct(t.dims, numpy_dtype(t)) for t in types)

    @property
    def is_endless(self) -> bool:
        """Return whether a loop's length depends on values, so that with others it might run for ever."""
        return is_endless(self.own_graph, [p.id for p in needed(self.by_xla)])


def units_of(graph: Graph, kernels: Sequence[StitchedKernel]) -> tuple[Unit, ...]:
    """Return the units of a plan's kernels, which are all that ``graph`` has."""
    together = Groups[int]()
    writers = {i: k for k, kernel in enumerate(kernels) for i in kernel.scheduled.outputs if graph[i].op == PARTIAL}
    for k, kernel in enumerate(kernels):
        together.group(k)
        for i in kernel.scheduled.inputs:
            if i in writers:
                together.join(k, writers[i])
    return tuple(_unit(graph, group, kernels) for group in sorted(map(sorted, together.all())))


def _unit(graph: Graph, numbers: Sequence[int], all_kernels: Sequence[StitchedKernel]) -> Unit:
    kernels = tuple(all_kernels[k] for k in numbers)
    written = {i for k in kernels for i in k.scheduled.outputs}
    inside = {i for k in kernels for p in k.scheduled.parts for i in p.pattern.nodes}
    # A number of the program's text is what it is: a kernel may read it, and know it as well.
    read = {i for k in kernels for i in k.scheduled.inputs} - written
    inputs = tuple(sorted(i for i in read if not _is_known(graph, i)))
    results: dict[int, None] = {}
    for i in sorted(written):
        if i in graph.result_set or any(u not in inside for u in graph.users[i]):
            # Where XLA does a reduction's last step, that is what the two ways to it have in common.
            results |= dict.fromkeys(finished_by(graph, i) if graph[i].op == PARTIAL else (i,))
    return Unit(tuple(numbers), kernels, graph, inputs, tuple(results))


def _is_known(graph: Graph, i: int) -> bool:
    """Return whether a value is the same number everywhere, which the program's text has."""
    node = graph[i]
    return node.op == "broadcast" and graph[node.operands[0]].op == "constant"


def _own_graph(graph: Graph, inputs: Sequence[int], results: tuple[int, ...]) -> Graph:
    """Return the graph with ``inputs``, and the parameters that are needed besides, as its parameters."""
    given = set(inputs)
    nodes = tuple(_empty(n) if n.id in given else n for n in graph.nodes)
    unit_graph = replace(graph, nodes=nodes, parameters=(), results=results)
    kept = {n.id: n for n in needed(unit_graph)}
    # Effects beside the unit are none of its own: while it is timed nobody is called, and nothing communicates.
    nodes = tuple(_empty(n) if has_effect(n) and n.id not in kept else n for n in nodes)
    parameters = {i for i, n in kept.items() if n.op == "parameter"}
    return replace(unit_graph, nodes=nodes, parameters=tuple(sorted(parameters | given)))


def _empty(node: Node) -> Node:
    """Return a value that is given, in place of the operation."""
    nothing: MappingProxyType[str, Graph] = MappingProxyType({})
    return replace(node, op="parameter", operands=(), attributes=MappingProxyType({}), graphs=nothing, literal=None)


def needed(graph: Graph) -> Iterator:
    """Yield the nodes that the results depend on."""
    waiting, seen = list(graph.results), set(graph.results)
    while waiting:
        node = graph[waiting.pop()]
        yield node
        new = [o for o in node.operands if o not in seen]
        seen.update(new)
        waiting += new


def is_endless(graph: Graph, nodes: Sequence[int] | None = None) -> bool:
    """Return whether a loop of unknown length is among the nodes (all of them by default) or in what they call."""
    chosen = graph.nodes if nodes is None else [graph[i] for i in nodes]
    return any(
        (n.op == "while" and "trip_count" not in n.attributes) or any(map(is_endless, n.graphs.values()))
        for n in chosen
    )


def by_graph(kernels: Sequence[StitchedKernel]) -> dict[int, list[StitchedKernel]]:
    """Return kernels by the identity of the graph that they are of."""
    grouped: dict[int, list[StitchedKernel]] = {}
    for kernel in kernels:
        grouped.setdefault(id(kernel.scheduled.graph), []).append(kernel)
    return grouped


def numbered(kernels: Sequence[StitchedKernel]) -> tuple[StitchedKernel, ...]:
    """Return the kernels by number, with one source for those that are alike."""
    sources = Sources()
    return tuple(replace(k, number=n, source=sources.first(k.source)) for n, k in enumerate(kernels))
