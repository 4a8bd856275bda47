"""Sums over the steps of a loop, after it, in teams: the weight gradients of a recurrent net.

What a loop in teams stacks, a product or reduction over all steps and rows sums up (see ``hoist``). XLA makes of each
such product two kernels or more, since it shares so long a sum out over several blocks and then adds up what they have.
Here a team has a tile of the result: the product is a loop of one step in teams, and all of a loop's sums share a
launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, prod
from types import MappingProxyType

import numpy as np

from hlo_parser import ELEMENT_TYPES
from jax_stitch.analysis.binding import Binding, Factor, inner, inner_sizes
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import Stacked, TeamLoop
from jax_stitch.devices import Device
from jax_stitch.graph.builder import Builder, moved
from jax_stitch.graph.model import Graph, GraphLayouts, Node, TensorType
from jax_stitch.ir.indices import const
from jax_stitch.loops.cost.team_cost import team_seconds
from jax_stitch.loops.cost.xla_cost import sum_seconds
from jax_stitch.loops.teams.sharing import SQUARE_ACCUMULATORS
from jax_stitch.loops.teams.team import NotForTeams, check

MOVES = frozenset({"reshape", "transpose"})
"""The operations that may stand between what a loop stacks and its sum."""

SHORTEST_PART = 16
"""Steps of a part of a sum, at least."""

MOST_TRIED = 4
"""Ways to share a result out for which the time is estimated."""

PRODUCT_GAIN = 1.2
"""By what factor a product on a CPU has to be estimated faster than XLA's."""

TILES_PER_CORE = 2
"""The same on a CPU, one of whose cores may come late."""


def sums_of(graph: Graph, loops: Sequence[Pattern], device: Device) -> list[Pattern]:
    """Return a pattern for each product and reduction over what ``loops`` stack, if all of them take less time than
    with XLA's kernels; on a CPU, where those cost no launch, for each product that does.
    """
    is_cpu = device.target.lanes_are_vectors
    stacked = {s.result for p in loops if isinstance(p.loop, TeamLoop) for s in p.loop.stacked}
    tiled: list[tuple[Node, TeamLoop]] = []
    for node in graph.nodes:
        if _is_along_columns(node) if is_cpu else node.op in ("dot", "reduce") and isinstance(node.type, TensorType):
            leaves = {_behind(graph, o)[-1] for o in _summed(node)}
            if leaves & stacked and (loop := _tiled(graph, node, device)) is not None:
                tiled.append((node, loop))
    if is_cpu:
        tiled = [one for one in tiled if _gain([one], graph, device) >= PRODUCT_GAIN]
    elif _gain(tiled, graph, device) < 1:
        return []
    taken = _with_moves(graph, [node for node, _ in tiled])
    return [
        Pattern(nodes, loop.rows, {}, tuple(sorted(set(loop.arrays.values()))), (node.id,), loop=loop)
        for (node, loop), nodes in zip(tiled, taken, strict=True)
    ]


def _is_along_columns(node: Node) -> bool:
    """Return whether a product sums along the first dimension of both operands: XLA:CPU copies one to sum along its
    rows.
    """
    dims = [tuple(node.attributes.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")]
    is_plain = node.op == "dot" and node.attributes.get("algorithm") is None
    return is_plain and dims == [(0,), (0,)] and len(node.tensor.dims) == 2


def _gain(tiled: Sequence[tuple[Node, TeamLoop]], graph: Graph, device: Device) -> float:
    """Return by what factor XLA's kernels for some sums take longer."""
    here = sum(team_seconds(loop, device) for _, loop in tiled)
    return sum(sum_seconds(graph, node, device) for node, _ in tiled) / here if tiled else 1.0


def _with_moves(graph: Graph, sums: Sequence[Node]) -> list[frozenset[int]]:
    """Return the nodes of each sum: itself, and the moves that only sums read, each with the first that does."""
    left = {i for node in sums for o in _summed(node) for i in _behind(graph, o)[:-1]} - graph.result_set
    inside = left | {node.id for node in sums}
    while more := {i for i in left if not all(u in inside for u in graph.users[i])}:
        left, inside = left - more, inside - more
    node_sets: list[frozenset[int]] = []
    for node in sums:
        own = {i for o in _summed(node) for i in _behind(graph, o)[:-1]} & left
        left -= own
        node_sets.append(frozenset({node.id} | own))
    return node_sets


def _summed(node: Node) -> tuple[int, ...]:
    """Return the operands that are summed over."""
    return node.operands if node.op == "dot" else node.operands[: len(node.operands) // 2]


def _behind(graph: Graph, i: int) -> list[int]:
    """Return a value, those it is a mere move of, and last what is in memory."""
    chain = [i]
    while graph[chain[-1]].op in MOVES:
        chain.append(graph[chain[-1]].operands[0])
    return chain


def _tiled(graph: Graph, node: Node, device: Device) -> TeamLoop | None:
    """Return the sum as a loop of one step, in the tiles and with the parts that are estimated to take the least
    time.
    """
    best: tuple[float, TeamLoop] | None = None
    for parts in _part_counts(graph, node, device):
        body, arrays = _body(graph, node, parts)
        for rows, binding in _tiles(node.tensor.dims, device):
            loop = _loop(body, arrays, node.id, rows, binding, device)
            try:
                check(loop)
            except NotForTeams:
                return None
            seconds = team_seconds(loop, device) if _fits(loop, device) else inf
            if best is None or seconds < best[0]:
                best = seconds, loop
    return best[1] if best is not None else None


def _loop(body: Graph, arrays: Mapping[int, int], result: int, rows: int, binding: Binding, device: Device) -> TeamLoop:
    (made,) = body.results
    sizes = {n.id: n.tensor.dims for n in body.nodes if n.op in ("dot", "reduce")}
    bound = {i: binding if len(dims) == len(binding) else (inner(dims[0]), *binding) for i, dims in sizes.items()}
    stacked = Stacked(made, tuple(const(0) for _ in binding), result, binding)
    in_pieces = device.target.lanes_are_vectors
    return TeamLoop(body, 1, rows, (), (stacked,), arrays, MappingProxyType(bound), in_pieces=in_pieces)


def _fits(loop: TeamLoop, device: Device) -> bool:
    """Return whether what a team caches fits into its shared memory."""
    return 8 * sum(prod(inner_sizes(b)) for b in loop.intermediates.values()) <= device.shared_per_block_optin


def _part_counts(graph: Graph, node: Node, device: Device) -> list[int]:
    """Return the numbers of parts that the sums of a product may be split into, one thread each, whose results are then
    added: so many that all threads have work.
    """
    if node.op != "dot" or device.target.lanes_are_vectors:
        return [1]
    first = graph[node.operands[0]].tensor.dims[node.attributes["lhs_contracting_dims"][0]]
    wanted = device.threads_per_block * SQUARE_ACCUMULATORS * device.multiprocessors // node.tensor.size
    counts = [k for k in range(1, first // SHORTEST_PART + 1) if first % k == 0 and k <= wanted]
    return counts[-2:] or [1]


def _body(graph: Graph, node: Node, parts: int) -> tuple[Graph, Mapping[int, int]]:
    """Return the sum by itself, and what its parameters are outside."""
    builder = Builder(graph.name)
    leaves = list(dict.fromkeys(_behind(graph, o)[-1] for o in _summed(node)))
    ids = {o: builder.parameter(graph[o].type, graph[o].name) for o in leaves}
    for o in _summed(node):
        for i in reversed(_behind(graph, o)[:-1]):
            ids[i] = builder.add(moved(graph[i], -1, tuple(ids[k] for k in graph[i].operands)))
    for o in node.operands:
        if o not in ids:  # What a reduction starts from.
            ids[o] = builder.add(moved(graph[o], -1, ()))
    operands = tuple(ids[o] for o in node.operands)
    result = builder.add(moved(node, -1, operands)) if parts == 1 else _in_parts(builder, node, operands, parts)
    body = builder.finish([result], True, graph.layouts)
    return body, MappingProxyType(dict(zip(body.parameters, leaves, strict=True)))


def _in_parts(builder: Builder, dot: Node, operands: Sequence[int], parts: int) -> int:
    """Return a product whose first contracted dimension is split into ``parts``: a product for each, and their sum."""
    a = dict(dot.attributes) | {name: tuple(dot.attributes.get(name, ())) for name in _DIMENSIONS}
    reshaped: list[int] = []
    for side, o in zip(("lhs", "rhs"), operands, strict=True):
        dims = builder[o].tensor.dims
        at = a[f"{side}_contracting_dims"][0]
        split = TensorType(builder[o].tensor.dtype, (*dims[:at], parts, dims[at] // parts, *dims[at + 1 :]))
        reshaped.append(builder.derive(dot, "reshape", split, [o]))
        a[f"{side}_contracting_dims"] = tuple(d + (d >= at) for d in a[f"{side}_contracting_dims"])
        a[f"{side}_batch_dims"] = (at, *(d + (d > at) for d in a[f"{side}_batch_dims"]))
    dims, dtype = dot.tensor.dims, "f64" if dot.tensor.dtype == "f64" else "f32"
    partial = builder.derive(dot, "dot", TensorType(dtype, (parts, *dims)), reshaped, a)
    zero = builder.constant(dot, dtype, np.zeros((), ELEMENT_TYPES[dtype].numpy))
    graphs = {"to_apply": _addition(dot, dtype)}
    total = builder.derive(dot, "reduce", TensorType(dtype, dims), [partial, zero], {"dimensions": (0,)}, graphs)
    return total if dtype == dot.tensor.dtype else builder.derive(dot, "convert", dot.type, [total])


_DIMENSIONS = tuple(f"{side}_{kind}_dims" for side in ("lhs", "rhs") for kind in ("batch", "contracting"))


def _addition(origin: Node, dtype: str) -> Graph:
    """Return the combiner that adds two numbers."""
    builder, scalar = Builder("add"), TensorType(dtype, ())
    operands = [builder.parameter(scalar), builder.parameter(scalar)]
    return builder.finish([builder.derive(origin, "add", scalar, operands)], True, GraphLayouts())


def _tiles(dims: Sequence[int], device: Device) -> Iterator[tuple[int, Binding]]:
    """Return ways to share an array out: the number of tiles, and what a tile is."""
    wanted = device.multiprocessors * (TILES_PER_CORE if device.target.lanes_are_vectors else 1)
    ways = list(product(*(_divisors(n, wanted) for n in dims)))
    most = max(k for counts in ways if (k := prod(counts)) <= wanted)
    full = [counts for counts in ways if most // 2 <= prod(counts) <= most]
    for counts in sorted(full, key=lambda counts: _read(dims, counts))[:MOST_TRIED]:
        binding, stride = [], 1
        for count, size in zip(reversed(counts), reversed(dims), strict=True):
            binding.append((Factor(count, stride), *inner(size // count)) if count > 1 else inner(size))
            stride *= count
        yield stride, tuple(reversed(binding))


def _read(dims: Sequence[int], counts: Sequence[int]) -> int:
    """Return how much all tiles read together, in rows and columns of the array."""
    return prod(counts) * sum(size // count for size, count in zip(dims, counts, strict=True))


def _divisors(n: int, most: int) -> list[int]:
    return [k for k in range(1, min(n, most) + 1) if n % k == 0]
