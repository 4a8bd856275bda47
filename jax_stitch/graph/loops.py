"""Loops: how often they run, what they leave as it was, and short ones unrolled."""

from __future__ import annotations

import numpy as np

from jax_stitch.util.values import replace

from .builder import Builder, freeze
from .model import ONE_KERNEL, ROLLED, Graph, Node
from .opcodes import DATA_MOVEMENT, ELEMENTWISE

LONGEST = 8
"""Trips of a loop that is unrolled."""

LARGEST = 2000
"""Nodes after unrolling."""

_CHEAP = ELEMENTWISE | DATA_MOVEMENT | {"parameter", "constant"}


def count_trips(builder: Builder, node: Node) -> int | None:
    """Write ``trip_count`` on a loop that counts from a constant to a constant by a constant."""
    if node.op != "while" or "trip_count" in node.attributes:
        return None
    trips = _counted(builder, node)
    return (
        None
        if trips is None
        else builder.add(replace(node, attributes=freeze({**node.attributes, "trip_count": trips})))
    )


def read_before(builder: Builder, node: Node) -> int | None:
    """Read what a loop carries and never changes from before the loop. Programs hand the whole of their state from step
    to step, parameters with it, and return it all.
    """
    if node.op != "get-tuple-element":
        return None
    loop = builder[node.operands[0]]
    if loop.op != "while":
        return None
    k, body = node.attributes["index"], loop.graphs["body"]
    return loop.operands[k] if body.results[k] == body.parameters[k] else None


def unroll(builder: Builder, node: Node) -> int | None:
    """Return the elements of a short loop of cheap operations, one body after the other.

    The rule sits on ``get-tuple-element`` (what users of a loop read), or on the loop itself where its only value is
    an array.
    """
    if node.op == "get-tuple-element":
        loop = builder[node.operands[0]]
        return _unrolled(builder, loop)[node.attributes["index"]] if _worth_unrolling(loop) else None
    if _worth_unrolling(node) and node.graphs["body"].single:
        return _unrolled(builder, node)[0]
    return None


def _worth_unrolling(node: Node) -> bool:
    if node.op != "while" or node.attributes.get("trip_count", LONGEST + 1) > LONGEST:
        return False
    body = node.graphs["body"]
    return len(body) * node.attributes["trip_count"] <= LARGEST and all(n.op in _CHEAP for n in body.nodes)


def _unrolled(builder: Builder, loop: Node) -> list[int]:
    values, trips = list(loop.operands), loop.attributes["trip_count"]
    for _ in range(trips):
        values = builder.inline(loop.graphs["body"], values)
    return [_marked(builder, i, trips) for i in values] if ONE_KERNEL in loop.attributes else values


def _marked(builder: Builder, i: int, trips: int) -> int:
    node = builder[i]
    if node.op not in ELEMENTWISE or node.tensor.size == 1:
        return i
    return builder.add(replace(node, attributes=freeze({**node.attributes, ROLLED: trips})))


def _counted(builder: Builder, node: Node) -> int | None:
    condition, body = node.graphs["condition"], node.graphs["body"]
    test = condition[condition.results[0]]
    if test.op != "compare" or test.attributes["direction"] not in ("LT", "LE", "GT", "GE", "NE"):
        return None
    counter = _position(condition, test.operands[0])
    if counter is None:
        return None
    start, limit = _integer(builder[node.operands[counter]].literal), _limit(builder, node, condition, test.operands[1])
    step = _step(body, counter)
    if start is None or limit is None or not step:
        return None
    return _trips(start, limit, step, test.attributes["direction"])


def _trips(start: int, limit: int, step: int, direction: str) -> int | None:
    if direction in ("GT", "GE"):
        start, limit, step = -start, -limit, -step
    if direction in ("LE", "GE"):
        limit += 1
    if direction == "NE":
        distance, remainder = divmod(limit - start, step)
        return distance if remainder == 0 and distance >= 0 else None
    if limit <= start:
        return 0
    return -((start - limit) // step) if step > 0 else None


def _position(graph: Graph, i: int) -> int | None:
    return graph.parameters.index(i) if i in graph.parameters else None


def _step(body: Graph, counter: int) -> int | None:
    """Return what each trip adds to the counter."""
    after = body[body.results[counter]]
    if after.op not in ("add", "subtract"):
        return None
    left, right = (body[o] for o in after.operands)
    if left.literal is not None and after.op == "add":
        left, right = right, left
    amount = _integer(right.literal)
    if left.id != body.parameters[counter] or amount is None:
        return None
    return amount if after.op == "add" else -amount


def _limit(builder: Builder, node: Node, condition: Graph, i: int) -> int | None:
    if condition[i].literal is not None:
        return _integer(condition[i].literal)
    carried = _position(condition, i)
    body = node.graphs["body"]
    if carried is None or body.results[carried] != body.parameters[carried]:
        return None
    return _integer(builder[node.operands[carried]].literal)


def _integer(literal: np.ndarray | None) -> int | None:
    if literal is None or literal.size != 1 or literal.dtype.kind not in "iu":
        return None
    return int(literal.reshape(()))
