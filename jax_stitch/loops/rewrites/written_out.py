"""Full unrolling of inner loops with a small trip count and a small body.

A team runs the sweeps of one body. A recursion along an array in each iteration (a tridiagonal solve, a line search)
would be an inner loop there. Unrolled, it is straight code: a compiler keeps its carried values in registers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jax_stitch.analysis.maps import STEP, Index
from jax_stitch.graph.builder import Builder, moved, with_called
from jax_stitch.graph.model import STAGE, Graph, Node, TensorType
from jax_stitch.graph.rewrites.fold import fold
from jax_stitch.graph.rewrites.simplify import simplify_movement
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.carried import Roles, roles_of
from jax_stitch.loops.teams.team import needed
from jax_stitch.util.values import replace

MOST_TRIPS, MOST_NODES = 128, 3000
"""The largest trip count of an inner loop, and the most operations of all unrolled inner loops together."""

MOST_ELEMENTS = 16
"""The most elements of a value that an iteration computes: long work does not belong in straight code."""


def with_inner_loops_written_out(graph: Graph, loop: int) -> Graph:
    """Return the graph with all ``while`` nodes in the body of ``loop`` unrolled, if all of them can be."""
    node = graph[loop]
    body = node.graphs["body"]
    inner = [n for n in body.nodes if n.op == "while"]
    roles = {n.id: roles_of(body, n, counters_after=True) for n in inner}
    if not inner or not all(r is not None and _is_small(body, r) for r in roles.values()):
        return graph
    known = {i: r for i, r in roles.items() if r is not None}
    if sum((r.trips or 0) * len(r.body) for r in known.values()) > MOST_NODES:
        return graph
    return with_called(graph, node, "body", _written_out(body, known))


def _is_small(body: Graph, roles: Roles) -> bool:
    if roles.trips is None or roles.trips > MOST_TRIPS:
        return False
    for n in roles.body.nodes:
        if n.op in ("while", "conditional", "scatter", "sort", "custom-call") or n.op.startswith("rng"):
            return False
        small = not isinstance(n.type, TensorType) or n.tensor.size <= MOST_ELEMENTS
        if not small and (n.op in ELEMENTWISE or n.op in ("dot", "reduce")):
            return False
    return True


def _written_out(body: Graph, roles: Mapping[int, Roles]) -> Graph:
    builder = Builder(body.name, (simplify_movement, fold))
    ids = {i: builder.parameter(body[i].type, body[i].name, body[i].source) for i in body.parameters}
    results: dict[int, Mapping[int, int]] = {}
    for n in body.nodes:
        if n.id in ids:
            continue
        if n.id in roles:
            results[n.id] = _steps(builder, n, [ids[o] for o in n.operands], roles[n.id])
            if isinstance(n.type, TensorType):
                ids[n.id] = results[n.id][0]
        elif n.op == "get-tuple-element" and n.operands[0] in results:
            ids[n.id] = results[n.operands[0]][n.attributes["index"]]
        else:
            ids[n.id] = builder.add(moved(n, -1, tuple(ids[o] for o in n.operands)))
    return builder.finish([ids[r] for r in body.results], body.single, body.layouts)


def _steps(builder: Builder, loop: Node, operands: list[int], roles: Roles) -> dict[int, int]:
    """Add all iterations of a loop, and return the ids of its results by their number."""
    body, trips = roles.body, roles.trips or 0
    number = {p: k for k, p in enumerate(body.parameters)}
    values = {k: operands[k] for k in roles.values}
    stacks: dict[int, dict[int, int]] = {k: {} for k, _, _ in roles.stacked}
    used = needed(body, [body.results[k] for k in roles.values] + [u for _, u, _ in roles.stacked])
    for step in range(trips):
        ids: dict[int, int] = {}
        for n in body.nodes:
            if n.id not in used:
                continue
            if n.op == STEP:
                ids[n.id] = _count(builder, n, step)
            elif n.id in number:
                ids[n.id] = values.get(number[n.id], operands[number[n.id]])
            else:
                own = replace(moved(n, -1, tuple(ids[o] for o in n.operands)), kernel=_kernel_of(n, step))
                ids[n.id] = builder.add(own)
        values = {k: ids[body.results[k]] for k in values}
        for k, update, at in roles.stacked:
            stacks[k][sum(start.evaluate({"step": step}) for start in at)] = ids[update]
    stacked = {k: _joined(builder, loop, stacks[k], body[update], at) for k, update, at in roles.stacked}
    counted = {k: _count(builder, body[p], trips) for p, k in number.items() if body[p].op == STEP}
    return values | stacked | counted


def _kernel_of(n: Node, step: int) -> str:
    """Return the name of an operation's kernel in an iteration: XLA runs it once for each."""
    return f"{n.kernel}{STAGE}{step}" if n.kernel else ""


def _count(builder: Builder, counter: Node, step: int) -> int:
    value = np.asarray(counter.attributes["start"] + counter.attributes["by"] * step)
    dtype = counter.tensor.dtype
    kind = {"s": "int", "u": "uint"}[dtype[0]]
    return builder.constant(counter, dtype, value.astype(f"{kind}{dtype[1:]}"))


def _joined(builder: Builder, loop: Node, pieces: Mapping[int, int], update: Node, at: Index) -> int:
    """Add the array of the slices of all iterations, each at its place, and return its id."""
    ordered = [pieces[place] for place in sorted(pieces)]
    axis = next((d for d, start in enumerate(at) if not start.is_const), update.tensor.dims.index(1))
    dims = tuple(len(ordered) if d == axis else n for d, n in enumerate(update.tensor.dims))
    whole = TensorType(update.tensor.dtype, dims)
    return builder.derive(replace(loop, kernel=""), "concatenate", whole, ordered, {"dimensions": (axis,)})
