"""The passes over loops, in their order: what makes a ``while`` fit for a team of threads, and what makes it faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax_stitch.devices import Device
from jax_stitch.graph.builder import freeze, with_called
from jax_stitch.graph.model import EXPANDED, Graph, Node
from jax_stitch.graph.rewrites.extrema import with_extrema
from jax_stitch.graph.rewrites.factorizations import with_expansions
from jax_stitch.graph.verifier import verify
from jax_stitch.ir.passes import Pass, Pipeline
from jax_stitch.loops.rewrites.derived_stacks import with_derived_stacks
from jax_stitch.loops.rewrites.doubled_scans import with_doubled_scans
from jax_stitch.loops.rewrites.hoist import with_simple_products, without_sums
from jax_stitch.loops.rewrites.inner_fit import with_fit_inner_loops
from jax_stitch.loops.rewrites.joined import with_joined_numbers
from jax_stitch.loops.rewrites.known_conditions import with_known_conditions
from jax_stitch.loops.rewrites.long_reductions import with_long_reductions_in_steps
from jax_stitch.loops.rewrites.parted_products import with_products_of_parts
from jax_stitch.loops.rewrites.ranked_sorts import with_ranked_sorts
from jax_stitch.loops.rewrites.sink import with_sunk_producers
from jax_stitch.loops.rewrites.tested_last import with_tests_last
from jax_stitch.loops.rewrites.transposed_weights import with_transposed_weights
from jax_stitch.loops.rewrites.written_out import with_inner_loops_written_out
from jax_stitch.util.values import replace


class Loop(NamedTuple):
    """A ``while`` node, by its number among those of its graph: passes add nodes, and keep the order of loops."""

    graph: Graph
    number: int

    @property
    def node(self) -> Node:
        """Return the node itself."""
        return whiles(self.graph)[self.number]

    @property
    def body(self) -> Graph:
        """Return what it does in each step."""
        return self.node.graphs["body"]


def whiles(graph: Graph) -> list[Node]:
    """Return the loops of a graph, in its order."""
    return [n for n in graph.nodes if n.op == "while"]


def _turns(device: Device) -> bool:
    """Return whether one thread runs a team's sweeps in turn."""
    return device.target.runs_sweeps_in_turn


def _vectors(device: Device) -> bool:
    """Return whether lanes are those of vectors."""
    return device.target.lanes_are_vectors


def _has_no_vectors(device: Device) -> bool:
    return not _vectors(device)


def _pass(
    name: str, rewrite: Callable[[Graph, int, Device], Graph], needs: Callable[[Device], bool] | None = None
) -> Pass[Loop, Device]:
    """Return a pass that rewrites a graph around its loop, whose id it is given."""

    def apply(loop: Loop, device: Device) -> Loop:
        graph = rewrite(loop.graph, loop.node.id, device)
        return loop if graph is loop.graph else Loop(graph, loop.number)

    return Pass(name, apply) if needs is None else Pass(name, apply, needs)


def _verify(loop: Loop) -> None:
    verify(loop.graph)


ALL_LOOPS: Pipeline[Graph, Device] = Pipeline(
    "all-loops",
    Pass("fold-conditions", lambda graph, device: with_known_conditions(graph)),
    Pass("join-scalars", lambda graph, device: with_joined_numbers(graph), _turns),
    verify=verify,
)
"""Rewrites of a graph for all of its loops together, wherever they run."""

SPLITTING: Pipeline[Graph, Device] = Pipeline(
    "split-for-teams",
    Pass("split-joined-products", lambda graph, device: with_simple_products(graph)),
    verify=verify,
)
"""Rewrites of a graph that are kept only where a team takes one of its loops."""

UNROLLING = Pipeline(
    "unroll-loop",
    _pass("unroll-inner-loops", lambda graph, loop, device: with_inner_loops_written_out(graph, loop), _turns),
    verify=_verify,
)

NORMALISING = Pipeline(
    "normalise-loop",
    _pass("normalise-inner-loops", lambda graph, loop, device: with_fit_inner_loops(graph, loop), _turns),
    _pass("rotate", lambda graph, loop, device: with_tests_last(graph, loop)),
    verify=_verify,
)
"""Rewrites that make a loop one that teams can run."""


def _with_extrema(graph: Graph, loop: int) -> Graph:
    node = graph[loop]
    return with_called(graph, node, "body", with_extrema(node.graphs["body"]))


def _everywhere(expand: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """Return a rewrite of a body that rewrites the loops and branches in it too."""

    def rewritten(body: Graph) -> Graph:
        for node in body.nodes:
            for name, called in node.graphs.items() if node.op in ("while", "conditional") else ():
                body = with_called(body, body[node.id], name, rewritten(called))
        return expand(body)

    return rewritten


def _expanded(graph: Graph, loop: int, expand: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with the body of a loop rewritten, and the loop marked where that changes anything."""
    node = graph[loop]
    body = expand(node.graphs["body"])
    if body is node.graphs["body"]:
        return graph
    marked = replace(node, attributes=freeze({**node.attributes, EXPANDED: True}))
    graph = replace(graph, nodes=(*graph.nodes[:loop], marked, *graph.nodes[loop + 1 :]))
    return with_called(graph, marked, "body", body)


IMPROVING = Pipeline(
    "improve-loop",
    _pass("expand-factorizations-in-loops", lambda graph, loop, device: _expanded(graph, loop, with_expansions)),
    _pass("expand-scans-in-loops", lambda graph, loop, device: _expanded(graph, loop, _everywhere(with_doubled_scans))),
    _pass("expand-sorts-in-loops", lambda graph, loop, device: _expanded(graph, loop, _everywhere(with_ranked_sorts))),
    _pass("expand-argmax-in-loops", lambda graph, loop, device: _with_extrema(graph, loop), _vectors),
    _pass("hoist-sums", lambda graph, loop, device: without_sums(graph, loop, _vectors(device)) or graph),
    _pass("rematerialise-stacks", lambda graph, loop, device: with_derived_stacks(graph, loop), _vectors),
    _pass(
        "sink-producers",
        lambda graph, loop, device: with_sunk_producers(graph, loop, joins=not _turns(device)),
    ),
    _pass("transpose-weights", lambda graph, loop, device: with_transposed_weights(graph, loop), _vectors),
    _pass("split-products", lambda graph, loop, device: with_products_of_parts(graph, loop), _vectors),
    _pass(
        "split-long-reductions",
        lambda graph, loop, device: with_long_reductions_in_steps(graph, loop),
        _has_no_vectors,
    ),
    verify=_verify,
)
"""Rewrites that make a loop faster in teams."""
