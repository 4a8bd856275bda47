"""Loops so short that on a CPU a call of a kernel takes longer than all of their steps."""

from __future__ import annotations

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node

SHORT_BYTES = 512
"""What a loop reads and writes in all its steps, up to which it is left to XLA.

XLA:CPU compiles a loop with so small a body into the program around it: a step takes some 20 ns, a kernel's a few less.
A call of a kernel takes 250 ns before its first step. Measured on loops of one row: equal after 20 to 80 steps.
"""

SHORT = "a loop so short that a call of a kernel would take longer than all of its steps"


def all_short(graph: Graph, device: Device) -> bool:
    """Return whether the loops of a graph are better left to XLA whatever their steps do; one that is not takes the
    others into its kernel.
    """
    return device.target.inlines_loops and all(_is_short(n) for n in graph.nodes if n.op == "while")


def _is_short(node: Node) -> bool:
    trips, body = node.attributes.get("trip_count"), node.graphs["body"]
    if trips is None or any(n.op == "while" for n in body.nodes):
        return False
    return bool(trips * _step_bytes(body) <= SHORT_BYTES)


def _step_bytes(body: Graph) -> int:
    """Return the bytes that a step reads and writes of what the loop carries: only the slices of arrays that it goes
    through slice by slice.
    """
    moved = 0
    for parameter, following in zip(body.parameters, body.results, strict=True):
        moved += max((_read(body, parameter, body[user]) for user in body.users[parameter]), default=0)
        if following != parameter:
            result = body[following]
            moved += node_bytes(body[result.operands[1]] if result.op == "dynamic-update-slice" else result)
    return moved


def _read(body: Graph, parameter: int, user: Node) -> int:
    if user.op == "dynamic-slice" and user.operands[0] == parameter:
        return node_bytes(user)
    if user.op == "dynamic-update-slice" and user.operands[0] == parameter:
        return 0
    return node_bytes(body[parameter])
