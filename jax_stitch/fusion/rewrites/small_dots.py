"""Expansion of matrix products too small for a library into multiplications and sums, so that kernels take them in.

A product ``[N, 4, 4] x [N, 4, 4]`` costs a library call and the memory traffic of its operands and result, for
arithmetic that a kernel hides behind its loads; on a CPU XLA makes ``N`` calls. Term by term it is elementwise, and
fuses with the producers of its operands and the readers of its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from msgspec import Struct

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import DTYPES, is_rematerializable, is_view, reason_left
from jax_stitch.analysis.terms import step_count
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import CALLS
from jax_stitch.graph.builder import Builder, copied, moved
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.simplify import simplify_convert, simplify_movement

MOST_TERMS = 16
"""The most terms of the sum for an element of the result."""

MOST_NODES = 600
"""The most nodes by which a graph may grow: planning time grows with them."""


EXACT = {"dot_f16_f16_f32": "f16", "dot_bf16_bf16_f32": "bf16", "dot_f32_f32_f32": "f32", "dot_f64_f64_f64": "f64"}
"""The algorithms that an expanded product satisfies without extra rounding, and their operands' type."""


def written_out(graph: Graph, device: Device) -> Graph:
    """Return the graph with its small products as elementwise operations. Called computations stay as they are.

    A product is small where its arithmetic, element by element, takes less time than its library call.
    """
    chosen = _chosen(graph, device)
    if not chosen:
        return graph

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        at = moved(node, -1, tuple(ids[o] for o in node.operands))
        return _terms(builder, at, device) if node.id in chosen else None

    return copied(graph, instead, (simplify_movement, _simplify_convert))


def note(before: Graph, after: Graph) -> tuple[str, ...]:
    """Return a note that names the products of ``before`` that are expanded in ``after``, if there are any."""
    left = {n.name for n in after.nodes if n.op == "dot"}
    names = ", ".join(dict.fromkeys(n.name for n in before.nodes if n.op == "dot" and n.name not in left))
    return (f"small matrix products written out as multiplications and sums: {names}",) if names else ()


def _chosen(graph: Graph, device: Device) -> set[int]:
    """Return the products to expand: those with something to fuse with, as long as the graph stays small enough."""
    small = {n.id for n in graph.nodes if is_small(graph, n, device)}
    chosen: set[int] = set()
    left = MOST_NODES
    for i in sorted(small):
        left -= 8 * step_count(graph, i)
        if left >= 0 and (_is_batch_of_calls(graph[i], device) or _has_neighbours(graph, i, small)):
            chosen.add(i)
    return chosen


def is_small(graph: Graph, node: Node, device: Device) -> bool:
    """Return whether an expanded product takes no longer than XLA's library call for it."""
    if node.op != "dot" or not isinstance(node.type, TensorType) or not _is_plain(graph, node):
        return False
    terms = step_count(graph, node.id)
    if not 0 < terms <= MOST_TERMS or node.type.size == 0:
        return False
    calls = _batch(node)
    if device.target.calls_each_product and calls == 1:  # A single product is a loop that XLA:CPU vectorises.
        return False
    rate = device.multiprocessors * device.fp32_lanes * device.clock_ghz * 1e9
    here = node.type.size * terms * device.target.step_clocks / rate
    moves = sum(node_bytes(n) for n in (node, *(graph[o] for o in node.operands))) / device.memory_bandwidth
    return here <= device.target.launch_seconds + calls * device.target.product_call_seconds + moves


def _simplify_convert(builder: Builder, node: Node) -> int | None:
    """Return the operand of a conversion to its own type, unless the conversion records XLA's calls."""
    return None if node.attributes.get(CALLS) else simplify_convert(builder, node)


def _batch(node: Node) -> int:
    return prod(node.tensor.dims[: len(node.attributes.get("lhs_batch_dims", ()))])


def _is_batch_of_calls(node: Node, device: Device) -> bool:
    """Return whether XLA calls a library for each product of a batch: it is expanded even with nothing to fuse with."""
    batch = len(node.attributes.get("lhs_batch_dims", ()))
    return (
        device.target.calls_each_product
        and min(node.tensor.dims[batch:], default=1) > 1
        and len(node.tensor.dims) == batch + 2
    )


def _is_plain(graph: Graph, node: Node) -> bool:
    """Return whether multiplications and additions in the accumulator's type satisfy a product's attributes."""
    algorithm = node.attributes.get("algorithm")
    types = {graph[o].tensor.dtype for o in node.operands}
    kinds = {dtype[0] for dtype in (*types, node.tensor.dtype)}
    if len(node.operands) != 2 or "sparsity" in node.attributes or not (kinds <= {"f", "b"} or kinds <= {"s", "u"}):
        return False
    if not {*types, node.tensor.dtype} <= DTYPES:
        return False
    return algorithm is None or types == {EXACT.get(algorithm)}


def _has_neighbours(graph: Graph, i: int, small: set[int]) -> bool:
    """Return whether the producer of an operand or a reader of the result, possibly through views, could be in one
    kernel with the product.
    """
    return any(
        j in small or (reason_left(graph, graph[j]) is None and graph[j].op not in ("parameter", "constant"))
        for j in _around(graph, i)
    )


def _around(graph: Graph, i: int) -> Iterator[int]:
    waiting = [(o, True) for o in graph[i].operands] + [(u, False) for u in graph.users[i]]
    while waiting:
        j, up = waiting.pop()
        if is_view(graph[j]):
            waiting += [(k, up) for k in (graph[j].operands if up else graph.users[j])]
        elif not is_rematerializable(graph[j]):
            yield j


def _terms(builder: Builder, dot: Node, device: Device) -> int:
    """Add the product as the sum of its terms, first to last, in the accumulator's type, and return its id."""
    sides = [_Side.of(builder, dot, k) for k in (0, 1)]
    wide = TensorType(_accumulator(builder, dot), dot.tensor.dims)
    left = builder[dot.operands[0]].tensor.dims
    terms = []
    for places in product(*(range(left[d]) for d in sides[0].contracted)):
        factors = [_factor(builder, dot, side, places, wide) for side in sides]
        terms.append(builder.derive(dot, "multiply", wide, factors))
    total = terms[0]
    for term in terms[1:]:
        total = builder.derive(dot, "add", wide, [total, term])
    calls = int(_batch(dot) * device.target.product_call_seconds / device.target.launch_seconds)
    return builder.derive(dot, "convert", dot.type, [total], {CALLS: calls})


class _Side(Struct, frozen=True):
    """An operand of a product: its contracted dimensions, the others, and the positions of these in the result."""

    operand: int
    contracted: tuple[int, ...]
    remaining: tuple[int, ...]
    places: tuple[int, ...]
    """Ascending: batch dimensions come first in the result, then the left operand's, then the right operand's."""

    @classmethod
    def of(cls, builder: Builder, dot: Node, k: int) -> _Side:
        name = ("lhs", "rhs")[k]
        batch = tuple(dot.attributes.get(f"{name}_batch_dims", ()))
        contracted = tuple(dot.attributes.get(f"{name}_contracting_dims", ()))
        rank = len(builder[dot.operands[k]].tensor.dims)
        free = tuple(d for d in range(rank) if d not in batch + contracted)
        first = len(batch) if k == 0 else len(dot.tensor.dims) - len(free)
        return cls(dot.operands[k], contracted, batch + free, (*range(len(batch)), *range(first, first + len(free))))


def _factor(builder: Builder, dot: Node, side: _Side, places: Sequence[int], wide: TensorType) -> int:
    """Add an operand at one index of the contracted dimensions, broadcast to the result's shape, and return its id."""
    source = builder[side.operand].tensor
    at = dict(zip(side.contracted, places, strict=True))
    cut = tuple((at[d], at[d] + 1, 1) if d in at else (0, size, 1) for d, size in enumerate(source.dims))
    unit = TensorType(source.dtype, tuple(1 if d in at else size for d, size in enumerate(source.dims)))
    value = builder.derive(dot, "slice", unit, [side.operand], {"slice": cut})
    order = sorted(side.remaining)
    flat = TensorType(source.dtype, tuple(source.dims[d] for d in order))
    value = builder.derive(dot, "reshape", flat, [value])
    transposed = TensorType(source.dtype, tuple(source.dims[d] for d in side.remaining))
    value = builder.derive(
        dot, "transpose", transposed, [value], {"dimensions": tuple(map(order.index, side.remaining))}
    )
    value = builder.derive(dot, "convert", TensorType(wide.dtype, transposed.dims), [value])
    return builder.derive(dot, "broadcast", wide, [value], {"dimensions": side.places})


def _accumulator(builder: Builder, dot: Node) -> str:
    """Return the type in which a product's terms are summed: for integers the result's, in which they wrap around."""
    if dot.tensor.dtype[0] in "su":
        return dot.tensor.dtype
    types = [dot.tensor.dtype, *(builder[o].tensor.dtype for o in dot.operands)]
    return "f64" if "f64" in types else "f32"
