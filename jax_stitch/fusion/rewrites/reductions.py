"""Rewriting reductions so that each step is local to the rows of some kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import Binding
from jax_stitch.graph.combiners import is_neutral
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.util.values import replace


class _Copy:
    """A graph being copied node by node; ``ids`` maps old ids to new ones."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.ids: dict[int, int] = {}

    def add(self, node: Node, operands: tuple[int, ...]) -> int:
        self.nodes.append(replace(node, id=len(self.nodes), operands=operands))
        return len(self.nodes) - 1

    def operands(self, node: Node) -> tuple[int, ...]:
        return tuple(self.ids[o] for o in node.operands)

    def done(self) -> Graph:
        g = self.graph
        ids = self.ids
        return replace(
            g,
            nodes=tuple(self.nodes),
            parameters=tuple(ids[p] for p in g.parameters),
            results=tuple(ids[r] for r in g.results),
        )


def in_two_steps(graph: Graph, cross: Collection[int], blocks: int) -> tuple[Graph, dict[int, int], dict[int, int]]:
    """Return each of the reductions ``cross`` as a partial one over the rows of each of ``blocks`` blocks, then one
    over the blocks.

    Returns the graph, the new ids of the old nodes (of a reduction: of its last step), and the new ids of the first
    steps.
    """
    copy = _Copy(graph)
    first: dict[int, int] = {}
    for node in graph.nodes:
        operands = copy.operands(node)
        if node.id in cross:
            remaining = node.tensor.dims
            partial = replace(
                node,
                op=PARTIAL,
                type=TensorType(accumulated_in(node.tensor.dtype, node.graphs["to_apply"]), (blocks, *remaining)),
                attributes=MappingProxyType({"dimensions": node.attributes["dimensions"], "blocks": blocks}),
            )
            first[node.id] = copy.add(partial, operands)
            copy.ids[node.id] = _finish(copy, node, first[node.id], operands[1])
        else:
            copy.ids[node.id] = copy.add(node, operands)
    return copy.done(), copy.ids, first


def _finish(copy: _Copy, node: Node, partial: int, initial: int) -> int:
    """Return the last step: in the partial results' element type, then converted to the reduction's own."""
    wide = accumulated_in(node.tensor.dtype, node.graphs["to_apply"])
    final = replace(node, attributes=MappingProxyType({"dimensions": (0,)}))
    if wide == node.tensor.dtype:
        return copy.add(final, (partial, initial))
    nothing: Mapping[str, Any] = MappingProxyType({})
    convert = replace(node, op="convert", attributes=nothing, graphs=nothing)
    initial = copy.add(replace(convert, type=TensorType(wide, ())), (initial,))
    combiner = widened(node.graphs["to_apply"], node.tensor.dtype, wide)
    final = replace(final, type=TensorType(wide, node.tensor.dims), graphs=MappingProxyType({"to_apply": combiner}))
    return copy.add(convert, (copy.add(final, (partial, initial)),))


def in_one_step(graph: Graph, first: Collection[int]) -> Graph:
    """Return the reverse of ``in_two_steps`` for reductions whose first steps these are. Nodes keep their ids; those of
    the first steps stay, with nobody to read them.
    """
    changed: dict[int, Node] = {}
    for i in first:
        partial = graph[i]
        attributes = MappingProxyType({"dimensions": partial.attributes["dimensions"]})
        for last in finished_by(graph, i):
            changed[last] = replace(partial, id=last, op="reduce", type=graph[last].type, attributes=attributes)
    return replace(graph, nodes=tuple(changed.get(n.id, n) for n in graph.nodes)) if changed else graph


def finished_by(graph: Graph, partial: int) -> tuple[int, ...]:
    """Return the last steps of a reduction whose first step is ``partial``: each the final reduction, or its
    conversion.
    """
    wide = graph[partial].tensor.dtype
    narrow = graph[graph[partial].operands[0]].tensor.dtype
    finals = graph.users[partial]
    return finals if wide == narrow else tuple(u for final in finals for u in graph.users[final])


def widened(graph: Graph, narrow: str, wide: str) -> Graph:
    """Return a combiner with element type ``wide`` in place of ``narrow``."""
    return replace(
        graph,
        nodes=tuple(
            replace(n, type=TensorType(wide, n.tensor.dims)) if n.tensor.dtype == narrow else n for n in graph.nodes
        ),
    )


def accumulated_in(dtype: str, combiner: Graph) -> str:
    """Return the element type that partial results of a reduction are kept in: a wider one has other bits."""
    has_bits = any(n.op == "bitcast-convert" for n in combiner.nodes)
    return "f32" if dtype in ("bf16", "f16") and not has_bits else dtype


def mixed_reductions(
    graph: Graph, bound: Mapping[int, Binding], candidates: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """Return reductions of bound values over some dimensions of rows and some inside the row: the dimensions inside, by
    node.
    """
    mixed: dict[int, tuple[int, ...]] = {}
    for i in candidates:
        node = graph[i]
        if node.op != "reduce" or len(node.operands) != 2 or i in bound or node.operands[0] not in bound:
            continue
        if not is_neutral(node.graphs["to_apply"], graph[node.operands[1]]):
            continue  # Both steps start from the initial value.
        operand = bound[node.operands[0]]
        dims = node.attributes["dimensions"]
        inside = tuple(d for d in dims if operand[d] and all(f.stride is None for f in operand[d]))
        across = [d for d in dims if operand[d] and all(f.stride is not None for f in operand[d])]
        none = [d for d in dims if not operand[d]]
        if inside and across and len(inside) + len(across) + len(none) == len(dims):
            mixed[i] = inside
    return mixed


def inside_first(graph: Graph, mixed: Mapping[int, tuple[int, ...]]) -> tuple[Graph, dict[int, int]]:
    """Return each reduction in ``mixed`` as one over the given dimensions, then one over the rest."""
    copy = _Copy(graph)
    for node in graph.nodes:
        operands = copy.operands(node)
        if node.id in mixed:
            dims = graph[node.operands[0]].tensor.dims
            inside = mixed[node.id]
            left = [d for d in range(len(dims)) if d not in inside]
            inner = replace(
                node,
                type=TensorType(node.tensor.dtype, tuple(dims[d] for d in left)),
                attributes=MappingProxyType({"dimensions": inside}),
            )
            step = copy.add(inner, operands)
            rest = tuple(k for k, d in enumerate(left) if d in node.attributes["dimensions"])
            outer = replace(node, attributes=MappingProxyType({"dimensions": rest}))
            copy.ids[node.id] = copy.add(outer, (step, operands[1]))
        else:
            copy.ids[node.id] = copy.add(node, operands)
    return copy.done(), copy.ids
