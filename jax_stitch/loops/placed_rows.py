"""Carried arrays of which an iteration overwrites a few elements in place: replay buffers, rings, tables.

Where an iteration reads such an array as well, XLA mostly copies it in each. A team reads what it needs of the old one
before it writes, and of the new one after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph
from jax_stitch.ir.team import Placed

FEW = 8
"""How many times as large as what is written or read of it an array is at least."""

_SELECTS = frozenset({"dynamic-slice", "gather", "slice"})


def placed_values(body: Graph, values: Sequence[int], device: Device) -> Mapping[int, tuple[int, ...]]:
    """Return those of the carried values, by number, that are updated in place, with what reads the old one.

    A team has its own copy of such an array, and its thread keeps the memory: none that exceeds the last-level cache.
    """
    kept = [k for k in values if node_bytes(body[body.parameters[k]]) <= device.l2_bytes]
    return {k: readers for k in kept if (readers := _readers(body, k)) is not None}


def written_by(body: Graph, k: int, bindings: Mapping[int, Binding]) -> Placed:
    """Return what an iteration writes over elements of such a value."""
    _, update, *starts = body[body.results[k]].operands
    return Placed(update, tuple(starts), bindings[update])


def _readers(body: Graph, k: int) -> tuple[int, ...] | None:
    """Return what reads the old array of a value that is updated in place; ``None`` for another."""
    parameter, following = body.parameters[k], body.results[k]
    node = body[following]
    if node.op != "dynamic-update-slice" or node.operands[0] != parameter or body.results.count(following) > 1:
        return None
    if parameter in node.operands[1:] or FEW * body[node.operands[1]].tensor.size > node.tensor.size:
        return None
    before = tuple(u for u in body.users[parameter] if u != following)
    for u in (*before, *body.users[following]):
        reader = body[u]
        if reader.op not in _SELECTS or FEW * reader.tensor.size > node.tensor.size:
            return None
        if reader.operands[0] not in (parameter, following) or {parameter, following} & set(reader.operands[1:]):
            return None
    after = _after(body, following)
    return None if any(u in after for u in before) else before


def _after(body: Graph, i: int) -> set[int]:
    """Return all that depends on a node."""
    reached, waiting = set[int](), [i]
    while waiting:
        for u in body.users[waiting.pop()]:
            if u not in reached:
                reached.add(u)
                waiting.append(u)
    return reached


def in_turn(body: Graph, made: Collection[int], before: Mapping[int, Collection[int]]) -> Iterator[int]:
    """Return nodes in an order in which each comes after those that it is computed from, and after those that have to
    come ``before`` it.
    """
    done: set[int] = set()
    for root in sorted(made):
        waiting = [(root, False)]
        while waiting:
            i, is_ready = waiting.pop()
            if is_ready:
                if i in made:
                    yield i
            elif i not in done:
                done.add(i)
                waiting.append((i, True))
                waiting += [(o, False) for o in (*body[i].operands, *before.get(i, ()))]
