"""How few launches a graph can be run in, whatever is stitched."""

from __future__ import annotations

from jax_stitch.analysis.sizes import is_of_one_number
from jax_stitch.analysis.support import is_library, is_rematerializable
from jax_stitch.graph.model import Graph, Node

PRODUCTS = frozenset({"dot", "convolution", "custom-call", "fft", "cholesky", "triangular-solve", "topk"})
"""Calls into libraries, whose launches are not counted."""


def least_launches(graph: Graph) -> int:
    """Return launches that no plan of the graph can do without, calls into libraries not counted.

    Where a computation waits for a library call that waits for another computation, no launch can hold both: there are
    at least as many launches as computations stand like that one after the other on some way through the graph. What
    XLA computes inside a product's kernel needs no launch. A scatter or another operation that no kernel of
    ours holds is a launch by itself; so is a loop.
    """
    products = {n.kernel for n in graph.nodes if n.kernel and n.op in PRODUCTS}
    apart = {n.kernel for n in graph.nodes if n.kernel and n.op not in PRODUCTS and is_library(graph, n)}
    made: list[int] = []
    """Launches on the longest way to a node, up to its value."""
    reader: list[int] = []
    """The same up to a computation that reads it, which may be part of the last of them."""
    for node in graph.nodes:
        before = max((made[o] for o in node.operands), default=0)
        here = max((reader[o] for o in node.operands), default=1)
        if node.kernel in apart:
            before = max((made[o] + (graph[o].kernel != node.kernel) for o in node.operands), default=1)
            here = before + 1
        elif is_library(graph, node) or (node.kernel and node.kernel in products):
            here = before + 1
        elif _computes(graph, node):
            before = here
        made.append(before)
        reader.append(here)
    return max(made, default=0)


def launched_apart(graph: Graph) -> int:
    """Return XLA's launches for what no kernel of ours holds, apart from calls into libraries and what is in loops and
    branches.
    """
    beside = PRODUCTS | {"while", "conditional", "partition-id"}
    return len({n.kernel for n in graph.nodes if n.kernel and n.op not in beside and is_library(graph, n)})


def _computes(graph: Graph, node: Node) -> bool:
    """Return whether some launch has to compute a value: not a name of another, nor one number, which its readers
    make.
    """
    is_name = not node.kernel or node.op in ("parameter", "tuple", "get-tuple-element")
    return not (is_name or is_rematerializable(node) or is_of_one_number(graph, node.id))
