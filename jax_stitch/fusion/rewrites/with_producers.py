"""Elementwise operations on the way to a product, counted with the kernel that makes what they read.

XLA of jax 0.12 leaves a bias that is added behind a transpose to the product that reads the sum; XLA before added it
where it transposes. A kernel of ours that transposes adds it for nothing. Left out, it is no part of the product any
more either: XLA does not fuse it with a product that reads a custom call, and launches it by itself.
"""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import is_library
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace

_MOVES = frozenset({"reshape", "transpose"})

_SMALL = 8
"""How many times as large as what it repeats a broadcast is at least, to be read with the rest at next to no cost."""


def with_producers(graph: Graph) -> Graph:
    """Return the graph in which such operations, and what moves elements on the way, belong to the kernel before."""
    products = {n.kernel for n in graph.nodes if n.kernel and is_library(graph, n)}
    homes: dict[int, str] = {}
    for node in graph.nodes:
        if node.kernel in products and node.op in ELEMENTWISE and node.id not in homes:
            homes |= _homes(graph, node, products, homes)
    if not homes:
        return graph
    return replace(graph, nodes=tuple(replace(n, kernel=homes.get(n.id, n.kernel)) for n in graph.nodes))


def _homes(graph: Graph, node: Node, products: Collection[str], homes: dict[int, str]) -> dict[int, str]:
    """Return the kernel that an operation belongs to, by the operations that come with it; empty where it stays."""
    own: list[int] = [node.id]
    large = [o for o in node.operands if not _is_small(graph, o)]
    own += [i for o in node.operands if o not in large for i in _moves_of(graph, o, node.kernel)]
    here = node
    while len(large) == 1:
        before = graph[large[0]]
        if graph.users[before.id] != (here.id,) or not isinstance(before.type, TensorType):
            return {}
        if node_bytes(node) > node_bytes(before) or before.op == "parameter":
            return {}
        home = homes.get(before.id, before.kernel)
        if home and home not in products:
            return dict.fromkeys(own, home)
        if before.op not in _MOVES:
            return {}
        own.append(before.id)
        here, large = before, list(before.operands)
    return {}


def _is_small(graph: Graph, i: int) -> bool:
    """Return whether a value is a broadcast of a much smaller one, or a constant."""
    node = graph[i]
    if node.op in _MOVES:
        return _is_small(graph, node.operands[0])
    if node.op == "broadcast":
        return node.tensor.size >= _SMALL * graph[node.operands[0]].tensor.size
    return node.op in ("constant", "iota")


def _moves_of(graph: Graph, i: int, kernel: str) -> list[int]:
    """Return what moves a small value on the way, in one kernel."""
    moves: list[int] = []
    while graph[i].kernel == kernel and graph[i].op in (*_MOVES, "broadcast") and len(graph.users[i]) == 1:
        moves.append(i)
        i = graph[i].operands[0]
    return moves
