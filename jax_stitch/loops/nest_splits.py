"""Ways to split what a nest of loops carries into rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from math import prod

from jax_stitch.analysis.binding import Binding, Factor, rows_of
from jax_stitch.analysis.contraction import is_contraction
from jax_stitch.analysis.maps import STEP
from jax_stitch.analysis.patterns.nest import RESULT, NestedLoop, Stacked
from jax_stitch.analysis.spread import bind, spread
from jax_stitch.analysis.support import is_rematerializable, reason_unsupported
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.loops.nest import CARRY, Opened


def splits(opened: Opened, loops: Sequence[NestedLoop]) -> Iterator[tuple[int, dict[int, Binding]]]:
    """Yield ways to split what the loops carry into rows, the finest first: the number of rows and the bindings of all
    that covers them. The last is a single row.
    """
    graph = opened.graph
    leaves = ("parameter", CARRY, RESULT, STEP, "while", "conditional")
    candidates = {n.id for n in graph.nodes if n.op not in leaves and isinstance(n.type, TensorType)}
    candidates = {i for i in candidates if _passes(graph, graph[i])}
    seeds: list[tuple[int, int, Binding]] = []
    for i in _split_values(loops):
        dims = graph[i].tensor.dims
        for along in _row_dims(len(dims)):
            seeds.append((prod(dims[d] for d in along), i, rows_of(dims, along)))
    tried: set[frozenset[tuple[int, Binding]]] = set()
    for rows, seed, binding in sorted(seeds, key=lambda s: -s[0]):
        if rows < 2:
            continue
        bindings = _spread(opened, loops, seed, binding, rows, candidates)
        key = frozenset((i, bindings[i]) for i in _split_values(loops) if i in bindings)
        if key not in tried:
            tried.add(key)
            yield rows, bindings
    yield 1, {}


def _passes(graph: Graph, node: Node) -> bool:
    """Return whether splits spread through a node."""
    if node.op == "dynamic-update-slice" or is_contraction(graph, node):
        return True
    return reason_unsupported(graph, node) is None


def _row_dims(rank: int) -> Iterator[tuple[int, ...]]:
    """Yield the dimensions that rows may run along: any, up to three dimensions; else some neighbours."""
    if rank <= 3:
        for count in range(rank, 0, -1):
            yield from combinations(range(rank), count)
    else:
        yield from (tuple(range(a, b)) for a in range(rank) for b in range(rank, a, -1))


def _split_values(loops: Sequence[NestedLoop]) -> list[int]:
    """Return the values in which a split of the loops is looked for: those carried, and slices written."""
    return [i for loop in loops for i in (*(c.parameter for c in loop.carried), *(s.update for s in loop.stacked))]


def _spread(
    opened: Opened, loops: Sequence[NestedLoop], seed: int, binding: Binding, rows: int, candidates: Collection[int]
) -> dict[int, Binding]:
    """Return the split spread from a seed through the graph, and along what loops carry."""
    graph = opened.graph
    bindings = bind(graph, seed, binding, rows, candidates)
    while True:
        new: dict[int, Binding] = {}
        for nested in loops:
            for c in nested.carried:
                same = (c.parameter, c.next, c.initial, c.result)
                known = next((bindings[i] for i in same if i in bindings), None)
                if known is not None:
                    new |= {i: known for i in same if i not in bindings and not is_rematerializable(graph[i])}
            for s in nested.stacked:
                if s.update in bindings and s.result not in bindings:
                    new[s.result] = whole_binding(graph[s.result], s, bindings[s.update])
                elif s.result in bindings and s.update not in bindings:
                    new[s.update] = tuple(
                        () if not e.is_const else dim for e, dim in zip(s.starts, bindings[s.result], strict=True)
                    )
        if not new:
            return bindings
        for i, b in new.items():
            if i not in bindings:
                spread(graph, bindings, i, b, rows, candidates)
                bindings[i] = b


def whole_binding(node: Node, stack: Stacked, update: Binding) -> Binding:
    """Return the binding of a stacked array whose slices are bound as ``update``."""
    dims = node.tensor.dims
    return tuple(
        dim if e.is_const else (Factor(size),) for e, dim, size in zip(stack.starts, update, dims, strict=True)
    )
