"""Operations written out where a kernel takes all of one: windows, convolutions, factorizations of small matrices.

Each becomes elementwise operations of the name that it had. Where no kernel takes all of these, XLA does better with
the original, and the graph is planned again with that.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import as_calls
from jax_stitch.fusion.rewrites.small_windows import window_written_out, windows_growth
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.matrices import Matrices
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.rewrites.factorizations import expansion_of, factorization_growth
from jax_stitch.graph.rewrites.simplify import simplify_movement
from jax_stitch.loops.cost.xla_cost import factored_seconds

MOST_NODES = 900
"""By how many nodes a graph may grow: the time of planning grows with them."""


ROWS = 8
"""The most rows of a matrix that straight code is tried with. It computes again what a column leaves for the next ones.
"""


def is_in_batch(graph: Graph, node: Node, device: Device) -> bool:
    """Return whether a node factorizes or solves small matrices, on a CPU as many as a vector has lanes: LAPACK takes a
    microsecond for one, and planning it would take seconds.
    """
    if factorization_growth(graph, node) is None:
        return False
    first = graph[node.operands[0]].tensor
    return not device.target.lanes_are_vectors or prod(first.dims[:-2]) >= device.warp_size


def expandable(graph: Graph, device: Device) -> dict[int, str]:
    """Return the nodes that can be written out, the first ones as long as the graph stays small enough, and their
    names.
    """
    names: dict[int, str] = {}
    left = MOST_NODES
    for node in graph.nodes:
        growth = windows_growth(graph, node, device)
        if growth is None and is_in_batch(graph, node, device):
            is_short = max(graph[node.operands[0]].tensor.dims[-2:]) <= ROWS
            growth = factorization_growth(graph, node) if is_short else None
        if growth is not None and growth <= left:
            names[node.id] = node.name
            left -= growth
    return names


def expanded(graph: Graph, chosen: Collection[int], device: Device) -> Graph:
    """Return the graph with ``chosen`` ones of the ``expandable`` nodes written out. What it calls stays."""
    if not chosen:
        return graph
    builder = Builder(graph.name, (simplify_movement,))
    ids: dict[int, tuple[int, ...]] = {
        i: (builder.parameter(graph[i].type, graph[i].name, graph[i].source),) for i in graph.parameters
    }
    for node in graph.nodes:
        if node.id in ids:
            continue
        if node.op == "get-tuple-element" and node.operands[0] in chosen:
            ids[node.id] = (ids[node.operands[0]][node.attributes["index"]],)
            continue
        at = moved(node, -1, tuple(ids[o][0] for o in node.operands))
        if node.id not in chosen:
            ids[node.id] = (builder.add(at),)
        elif (expansion := expansion_of(graph, node)) is not None:
            ids[node.id] = expansion(Matrices(builder, node, at.operands[0]), at.operands)
            builder.mark(ids[node.id][0], as_calls(factored_seconds(graph, node, device), device))
        else:
            ids[node.id] = window_written_out(builder, at, device)
    return builder.finish([ids[r][0] for r in graph.results], graph.single, graph.layouts)
