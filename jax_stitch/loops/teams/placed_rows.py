"""Carried arrays of which an iteration overwrites a few elements in place: replay buffers, rings, tables.

Where an iteration reads such an array as well, XLA mostly copies it in each. A team reads what it needs of the old one
before it writes, and of the new one after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.contraction import contraction
from jax_stitch.analysis.patterns.team import Placed
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.operations import ELEMENTWISE

FEW = 8
"""How many times as large as what is written or read of it an array is at least."""

_SELECTS = frozenset({"dynamic-slice", "gather", "slice"})


class Updates(NamedTuple):
    """The updates in place of a carried value in an iteration."""

    nodes: tuple[int, ...]
    """Each ``dynamic-update-slice``, in order: each but the first is one of the array that the one before it leaves."""
    readers: tuple[int, ...]
    """The values that are computed from elements before an update may overwrite these."""


def placed_values(body: Graph, values: Sequence[int], device: Device) -> Mapping[int, Updates]:
    """Return those of the carried values, by number, that are updated in place.

    A team has its own copy of such an array, and its thread keeps the memory: none that exceeds the last-level cache.
    """
    kept = [k for k in values if node_bytes(body[body.parameters[k]]) <= device.l2_bytes]
    return {k: found for k in kept if (found := _updates(body, k)) is not None}


def written_by(body: Graph, updates: Updates, bindings: Mapping[int, Binding]) -> tuple[Placed, ...]:
    """Return what an iteration writes over elements of such a value."""
    written = ((i, *body[i].operands[1:]) for i in updates.nodes)
    return tuple(Placed(i, update, tuple(starts), bindings[update]) for i, update, *starts in written)


def _updates(body: Graph, k: int) -> Updates | None:
    """Return how a value is updated in place; ``None`` where it is not."""
    parameter, following = body.parameters[k], body.results[k]
    nodes = _chain(body, parameter, following)
    size = body[parameter].tensor.size
    if not nodes or FEW * sum(body[body[i].operands[1]].tensor.size for i in nodes) > size:
        return None
    readers: list[int] = []
    for state, update in zip((parameter, *nodes), (*nodes, None), strict=True):
        here = made_from(body, state, update)
        if here is None or any(body[i].op in _SELECTS and not _is_selection(body, i, state, size) for i in here):
            return None
        if update is not None:  # What is read of a state is read before it is overwritten.
            after = _after(body, update)
            if any(i in after for i in here):
                return None
            readers += here
    return Updates(nodes, tuple(readers))


def made_from(body: Graph, state: int, update: int | None) -> tuple[int, ...] | None:
    """Return the selections, reductions and products that are made of a carried array, but for its ``update``; ``None``
    where another value is.
    """
    made: list[int] = []
    waiting = [u for u in body.users[state] if u != update]
    seen = set(waiting)
    while waiting:
        node = body[waiting.pop()]
        if contraction(body, node.id) is not None and not isinstance(node.type, TensorType):
            made += body.users[node.id]
        elif contraction(body, node.id) is not None or node.op in _SELECTS:
            made.append(node.id)
        elif node.op in ELEMENTWISE and node.id not in body.result_set:
            waiting += [u for u in body.users[node.id] if u not in seen]
            seen.update(body.users[node.id])
        else:
            return None
    return tuple(made)


def _chain(body: Graph, parameter: int, following: int) -> tuple[int, ...]:
    """Return the updates that lead from a carried array to its next value; none for another value."""
    nodes: list[int] = []
    here = following
    while here != parameter:
        node = body[here]
        if node.op != "dynamic-update-slice" or body.results.count(here) != (not nodes):
            return ()
        nodes.append(here)
        here = node.operands[0]
    return tuple(reversed(nodes))


def _is_selection(body: Graph, u: int, state: int, size: int) -> bool:
    """Return whether a node selects few elements of an array, and reads it for nothing else."""
    reader = body[u]
    few = reader.op in _SELECTS and FEW * reader.tensor.size <= size
    return few and reader.operands[0] == state and state not in reader.operands[1:]


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
