"""What a team of one thread caches in an iteration besides what it must: values that it would compute repeatedly.

Where a team is one thread, a value that is cached costs a store and a load, and no barrier. So all that takes a few
operations, and that several sweeps or several places of one read, is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jax_stitch.analysis.maps import MOVES, STEP
from jax_stitch.analysis.support import is_computed
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.ir.operations import ELEMENTWISE, HEAVY
from jax_stitch.loops.teams.pieces import combs

LONG = 4
"""Operations from which on a value is cached for a second reader; a division or a function counts for more."""

FEW = 3
"""Pieces of a concatenation that its readers' places may be split by."""

_HEAVY_COST, _MOST_COST = 10, 1 << 20
_MOST_SITES = 8

_FIRST_INDEX = {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}
"""By opcode, the first operand that is an index."""

_Site = tuple[object, ...]
"""Where a value is computed: for the places of one sweep, as far as that can be told before there are sweeps."""


def worth_caching(body: Graph, alive: Collection[int], roots: Sequence[int], cached: Collection[int]) -> set[int]:
    """Return the elementwise values of ``alive`` that are worth caching beside those that are ``cached``."""
    cost, asks, summed = costs(body, alive, cached), asking(body, alive), _summed(body, alive)
    picking = _picking(body, alive)
    worth: set[int] = set()
    sites: dict[int, dict[_Site, float]] = {}
    for i in sorted(alive, reverse=True):
        node = body[i]
        if not isinstance(node.type, TensorType):
            continue
        here: dict[_Site, float] = {("at", node.tensor.dims, i): 1.0} if i in roots else {}
        for u in body.users[i]:
            if u in alive:
                for site, times in _sites_of(body, node, body[u], u in worth or u in cached, sites.get(u, {})):
                    here[site] = max(here.get(site, 0.0), times)
        is_kept = node.op in ELEMENTWISE and node.tensor.dtype != "pred" and i not in picking
        repeated = is_kept and _is_repeated(here, cost[i])
        apart = here and (
            _is_in_pieces(body, node, i in summed) or (i in asks and not all(u in asks for u in body.users[i]))
        )
        if repeated or apart:
            worth.add(i)
        sites[i] = dict(list(here.items())[:_MOST_SITES])
    return worth - set(cached)


def _is_repeated(sites: Mapping[_Site, float], cost: int) -> bool:
    """Return whether it pays to cache a value: sweeps over the same places may be one, unless what they share takes
    long.
    """
    if cost < _HEAVY_COST:
        sites = {site[:2] if site[0] == "at" else site: times for site, times in sites.items()}
    return cost >= LONG and sum(sites.values()) >= 2


def asking(body: Graph, alive: Collection[int]) -> set[int]:
    """Return sums of padded values. A loop that tests at each place where the padding begins does not vectorise: other
    work at these places is better done in another loop.
    """
    padded: set[int] = set()
    for i in sorted(alive):
        node = body[i]
        if is_computed(node.type):
            adds = node.op == "add" and any(o in padded for o in node.operands) and combs(body, node) is None
            if node.op == "pad" or adds:
                padded.add(i)
    return padded


def _picking(body: Graph, alive: Collection[int]) -> set[int]:
    """Return the values that indices are computed from: those are followed into what they pick."""
    found: set[int] = set()
    for i in sorted(alive, reverse=True):
        node = body[i]
        if i in found and node.op in (*ELEMENTWISE, *MOVES):
            indices = node.operands
        elif node.op == "scatter":
            indices = (node.operands[len(node.operands) // 2],)
        else:
            indices = node.operands[_FIRST_INDEX.get(node.op, len(node.operands)) :]
        found.update(o for o in indices if isinstance(body[o].type, TensorType) and body[o].tensor.dtype[0] in "su")
    return found


def _summed(body: Graph, alive: Collection[int]) -> set[int]:
    """Return the values that are computed in the steps of a reduction or a product, unless they are cached."""
    summed: set[int] = set()
    for i in sorted(alive, reverse=True):
        users = (u for u in body.users[i] if u in alive)
        if any(u in summed or body[u].op in ("reduce", "dot", "scan", "sort", "while") for u in users):
            summed.add(i)
    return summed


def _is_in_pieces(body: Graph, node: Node, is_summed: bool) -> bool:
    """Return whether a value is written in pieces: a reader would have to ask at each place in which of them it is. Of
    a few the reader's places can be split in its place (``kernel/index_sets.py``), if it is no reduction.
    """
    if node.op == "concatenate" and len(node.operands) <= FEW and not is_summed and _is_rolled(body, node):
        return False
    return is_computed(node.type) and (node.op == "concatenate" or combs(body, node) is not None)


def _is_rolled(body: Graph, node: Node) -> bool:
    """Return whether a concatenation only moves what it is made of, and elementwise operations of its size read it."""
    sliced = all(body[o].op in MOVES for o in node.operands)
    users = [body[u] for u in body.users[node.id]]
    return sliced and all(u.op in ELEMENTWISE or u.op in ("slice", "concatenate") for u in users)


def costs(body: Graph, alive: Collection[int], cached: Collection[int]) -> dict[int, int]:
    """Return about how many operations an element takes, from what is cached anyway."""
    cost: dict[int, int] = {}
    for i in sorted(alive):
        node = body[i]
        if i in cached or node.op in ("parameter", "constant", "iota", STEP) or node.op not in (*ELEMENTWISE, *MOVES):
            cost[i] = 0
            continue
        own = _HEAVY_COST if node.op in HEAVY else int(node.op in ELEMENTWISE)
        cost[i] = min(_MOST_COST, own + sum(cost[o] for o in node.operands))
    return cost


def _sites_of(
    body: Graph, node: Node, user: Node, is_cached: bool, beyond: dict[_Site, float]
) -> list[tuple[_Site, float]]:
    """Return where ``user`` has a value computed, and how often each of its elements."""
    if not isinstance(user.type, TensorType) or user.op not in (*ELEMENTWISE, *MOVES):
        return [((user.id,), _times_read(node, user))]
    if user.op in ELEMENTWISE and user.tensor.dims == node.tensor.dims:
        return [(("at", user.tensor.dims, user.id), 1.0)] if is_cached else list(beyond.items())
    spread = max(1.0, user.tensor.size / max(1, node.tensor.size)) if user.op not in ("concatenate", "pad") else 1.0
    if is_cached:
        return [((user.id,), spread)]
    return [((user.id, *site), spread * times) for site, times in beyond.items() if len(site) < _MOST_SITES]


def _times_read(node: Node, user: Node) -> float:
    if user.op != "dot":
        return 1.0
    contracted = user.attributes.get("lhs_contracting_dims", ())
    own = node.tensor.size
    return max(1.0, user.tensor.size * max(1, len(contracted)) / max(1, own))
