"""One piece of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jax_stitch.analysis.support import is_library, is_rematerializable
from jax_stitch.graph.form import graph_form
from jax_stitch.graph.model import Graph, Node
from jax_stitch.util.values import replace

OUTSIDE = "outside"
"""A node of the graph around a piece, which the piece reads, is read by, or shares a kernel of XLA with."""

CALL = "outside-call"
"""The same, a call into a library that no kernel of ours can take the place of."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Nodes of a whole graph as a graph of their own, with the nodes next to them as ``OUTSIDE`` ones.

    Names are numbers and XLA's kernels are numbered, so that pieces that compute the same are the same graph.
    """

    graph: Graph
    nodes: tuple[int, ...]
    """Of the whole graph, in its order."""
    outside: frozenset[int]
    """Nodes of the whole graph that the piece has besides: around it, or rematerialised in it."""
    local: Mapping[int, int]
    """The piece's nodes by those of the whole graph."""
    starts: tuple[int, ...]
    """The whole graph's nodes by the piece's."""
    form: Hashable
    """Equal for pieces that are alike: all that a plan of one depends on."""

    def start_of(self, node: Node) -> int:
        """Return the node of the whole graph that a node of the planned piece stands for, or was made of."""
        return self.starts[int(node.name)]


def cut_out(graph: Graph, nodes: Sequence[int], copied: Sequence[int]) -> Piece:
    """Return the piece of ``nodes``, which makes the nodes ``copied`` for itself."""
    own, inside = set(nodes), {*nodes, *copied}
    kept = _in_order(graph, nodes, inside)
    local = {i: k for k, i in enumerate(kept)}
    kernels: dict[str, str] = {"": ""}
    results = graph.result_set
    made: list[Node] = []
    for k, i in enumerate(kept):
        node = graph[i]
        kernel = kernels.setdefault(node.kernel, f"k{len(kernels)}")
        changes: dict[str, Any] = {"id": k, "name": str(k), "kernel": kernel, "source": "", "scope": ""}
        if i in inside:
            changes["operands"] = tuple(local[o] for o in node.operands)
        elif is_rematerializable(node):
            changes["operands"] = ()
        else:
            nothing: Mapping[str, Any] = MappingProxyType({})
            # Of what reads the piece's values, only that it does.
            read = tuple(local[o] for o in node.operands if o in own)
            op = CALL if is_library(graph, node) else OUTSIDE
            changes |= {"op": op, "operands": read, "attributes": nothing, "graphs": nothing, "literal": None}
        made.append(replace(node, **changes))
    piece = Graph(graph.name, tuple(made), (), tuple(local[i] for i in nodes if i in results))
    outside = frozenset(kept) - frozenset(nodes)
    form = graph_form(piece), tuple(n.kernel for n in piece.nodes)
    return Piece(piece, tuple(nodes), outside, local, tuple(kept), form)


def _in_order(graph: Graph, nodes: Sequence[int], inside: Collection[int]) -> list[int]:
    """Return the piece's nodes each after what it reads, then what reads them: the same order wherever the piece
    stands.
    """
    kept: dict[int, None] = {}

    def add(i: int) -> None:
        if i not in kept:
            for o in graph[i].operands if i in inside else ():
                add(o)
            kept[i] = None

    for i in nodes:
        add(i)
    return list(kept | dict.fromkeys(u for i in nodes for u in graph.users[i] if u not in kept))
