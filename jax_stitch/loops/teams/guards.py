"""Iterations that change nothing: a loop whose carried values all keep what they are unless a truth holds.

So does a batched ``while_loop`` write what each row does until it ends, and a scan over padded sequences. A team
tests the truth first, and does the rest of the iteration only where it holds.
"""

from __future__ import annotations

from jax_stitch.graph.model import Graph
from jax_stitch.loops.carried import Roles
from jax_stitch.util.values import replace


def guarded(roles: Roles) -> tuple[Roles, int] | None:
    """Return the roles in a body that always changes its carried values, and the truth without which it must not; None
    where there is no such truth.
    """
    body = roles.body
    if roles.stacked or roles.trips is None or not roles.values:
        return None
    selects = [body[body.results[k]] for k in roles.values]
    parameters = [body.parameters[k] for k in roles.values]
    if any(s.op != "select" or s.operands[2] != p for s, p in zip(selects, parameters, strict=True)):
        return None
    truths = {_source(body, s.operands[0]) for s in selects}
    if len(truths) != 1 or any(body[i].op == "parameter" for i in truths):
        return None
    results = list(body.results)
    for k, s in zip(roles.values, selects, strict=True):
        results[k] = s.operands[1]
    return replace(roles, body=replace(body, results=tuple(results))), truths.pop()


def _source(body: Graph, i: int) -> int:
    """Return the value that a truth is broadcast from."""
    while body[i].op in ("broadcast", "reshape", "transpose"):
        i = body[i].operands[0]
    return i
