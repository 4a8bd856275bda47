"""What of a graph cannot be replayed, told before anything is traced."""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar

from msgspec import Struct

from jax_stitch.graph.model import Graph, Node

from .checks import CHECKS

_REASONS = {
    "infeed": "it reads from the host",
    "outfeed": "it writes to the host",
    "send": "it talks to another device or the host",
    "send-done": "it talks to another device or the host",
    "recv": "it talks to another device or the host",
    "recv-done": "it talks to another device or the host",
    "rng-get-and-update-state": "it changes random state kept inside XLA",
}


class Unsupported(Struct, frozen=True):
    """A node that has no equal in JAX, and why."""

    node: Node
    reason: str

    def __str__(self) -> str:
        where = f" from {self.node.source}" if self.node.source else ""
        return f"{self.node.op} ({self.node.name}{where}): {self.reason}"


replayed: ContextVar[Collection[str] | None] = ContextVar("jax_stitch_replayed", default=None)
"""The opcodes that have rules in the process that will replay what is planned here; None for this one."""


def opcodes() -> Collection[str]:
    """Return the opcodes that have rules."""
    known = replayed.get()
    if known is None:
        from .rules import RULES  # With JAX, which a process that only plans does not import.

        known = RULES.keys()
    return known


def unsupported(graph: Graph) -> list[Unsupported]:
    """Return the nodes of a graph, and of the computations it calls, that ``replay`` cannot rebuild."""
    return _unsupported(graph, opcodes())


def _unsupported(graph: Graph, known: Collection[str]) -> list[Unsupported]:
    nodes = []
    for node in graph.nodes:
        if (reason := _reason(node, known)) is not None:
            nodes.append(Unsupported(node, reason))
        for called in node.graphs.values():
            nodes += _unsupported(called, known)
    return nodes


def _reason(node: Node, known: Collection[str]) -> str | None:
    if node.op in _REASONS:
        return _REASONS[node.op]
    if node.op == "parameter":
        return None
    if node.op not in known:
        return "JAX has no operation for it"
    check = CHECKS.get(node.op)
    return None if check is None else check(node)
