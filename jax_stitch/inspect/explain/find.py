"""Finding an instruction by its name in a plan and the plans of its loops and branches."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from jax_stitch.devices import Device
from jax_stitch.fusion import FusionPlan
from jax_stitch.graph.model import STREAMED, Graph, Node
from jax_stitch.loops.loop_patterns import prepared
from jax_stitch.util.user_errors import UserError


class UnknownInstructionError(UserError, ValueError):
    """No instruction or kernel of XLA has that name in the planned graph."""

    def __init__(self, name: str, known: list[str]) -> None:
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:5]
        hint = f" Close to it: {', '.join(close)}." if close else ""
        super().__init__(
            f"the plan has no instruction named {name!r}.{hint} Names are those of the optimized HLO (`plan.hlo`) and "
            "of `plan.kernels[n].ops`; layout changes, tuples and duplicates are no instructions of a plan."
        )


@dataclass(frozen=True, eq=False)
class Located:
    """An instruction: the plan of the computation that it is in, that computation before it was planned, and its nodes
    in both.
    """

    name: str
    plan: FusionPlan
    graph: Graph
    node: int
    """Of ``graph``."""
    planned: tuple[int, ...]
    """Of the plan's graph: two where a reduction across rows is in two steps."""
    inside: str = ""
    """The instruction whose body it is in, where that is no plan of its own: what is found is then this one."""
    body: Graph | None = None
    """That body, and ``inner`` the instruction asked for in it."""
    inner: int = 0


def find(plan: FusionPlan, graph: Graph, device: Device, name: str) -> Located:
    """Return an instruction, or the last one of a kernel of XLA of that name; a percent sign before it is left out.

    ``graph`` is what ``plan`` was made of. Raises ``UnknownInstructionError``.
    """
    wanted = name.removeprefix("%")
    known: dict[str, None] = {}
    for current, before in _plans(plan, graph, device):
        here = {node.name: node.id for node in before.nodes if node.name}
        kernels = {node.kernel: node.id for node in before.nodes if node.kernel}
        bodies = {
            inner.name: (node.name or node.op, body, inner.id) for node in before.nodes for inner, body in _inside(node)
        }
        known |= dict.fromkeys((*here, *kernels))
        own = here.get(wanted, kernels.get(wanted))
        if own is not None:
            return Located(before[own].name, current, before, own, _planned(current, before[own].name))
        if wanted in bodies:
            outer, body, inner = bodies[wanted]
            if all(current.graph[w].name != outer for w, _ in current.children):
                return Located(wanted, current, before, here[outer], _planned(current, outer), outer, body, inner)
        known |= dict.fromkeys(bodies)
    raise UnknownInstructionError(wanted, list(known))


def _plans(plan: FusionPlan, graph: Graph, device: Device) -> Iterator[tuple[FusionPlan, Graph]]:
    """Yield every plan, with the graph it was made of."""
    yield plan, prepared(graph, device)
    for (node, name), child in plan.children.items():
        yield from _plans(child, plan.graph[node].graphs[name], device)


def _planned(plan: FusionPlan, name: str) -> tuple[int, ...]:
    """Return the nodes of that name, and the loops over tiles that compute it."""
    return tuple(n.id for n in plan.graph.nodes if n.name == name or name in streamed_names(n))


def streamed_names(node: Node) -> frozenset[str]:
    """Return the names of what a loop over tiles computes; of other nodes, none."""
    if STREAMED not in node.attributes:
        return frozenset()
    return frozenset(n.name for n in node.graphs["body"].nodes if n.op not in ("parameter", "constant", "iota"))


def _inside(node: Node) -> Iterator[tuple[Node, Graph]]:
    """Yield the named instructions of loops and branches of a node, at any depth, with the computations that they are
    in.
    """
    if node.op not in ("while", "conditional", "call"):
        return
    for body in node.graphs.values():
        for inner in body.nodes:
            if inner.name:
                yield inner, body
            yield from _inside(inner)
