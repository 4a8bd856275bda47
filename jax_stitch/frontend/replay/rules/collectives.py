"""Values combined across devices. Issued with the groups that XLA's partitioner chose; XLA combines and overlaps them
again.

A rebuilt program runs on every device of a mesh, as the body of a ``shard_map`` over all of its axes. There an
operation's groups mean what they meant in the partitioned program: positions in the order of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jax import lax

from jax_stitch.graph.model import Node, TensorType, TupleType

from ..operation import Region, operation
from . import mlir_text
from .registry import Called, Value, rule

_CHANNEL = {"channel_handle": "#stablehlo.channel_handle<handle = 1, type = 1>"}
"""Between devices, under the one channel number that JAX gives all of its own: XLA makes them distinct."""

_GLOBAL = {**_CHANNEL, "use_global_device_ids": "unit"}


def _groups(node: Node) -> dict[str, str]:
    groups = node.attributes["replica_groups"].groups
    width = max(map(len, groups))
    rows = ", ".join(mlir_text.listed([*group, *[-1] * (width - len(group))]) for group in groups)
    return {"replica_groups": f"dense<[{rows}]> : tensor<{len(groups)}x{width}xi64>"}


def _each(
    node: Node, operands: Sequence[Value], attributes: Mapping[str, str], regions: Sequence[Region] = ()
) -> Value:
    """Return the operation on each operand by itself: a variadic one is XLA's packing of several."""
    elements = node.type.elements if isinstance(node.type, TupleType) else (node.tensor,)
    name = f"stablehlo.{node.op.replace('-', '_')}"
    values = []
    for operand, element in zip(operands, elements, strict=True):
        assert isinstance(element, TensorType)
        values.append(operation(name, [operand], [element], attributes, regions)[0])
    return tuple(values) if isinstance(node.type, TupleType) else values[0]


def _combiner(node: Node, called: Called) -> list[Region]:
    graph = node.graphs["to_apply"]
    return [Region(tuple(graph[p].tensor for p in graph.parameters), called("to_apply"))]


@rule("all-reduce")
def _all_reduce(node: Node, operands: Sequence[Value], called: Called) -> Value:
    return _each(node, operands, {**_groups(node), **_GLOBAL}, _combiner(node, called))


@rule("reduce-scatter")
def _reduce_scatter(node: Node, operands: Sequence[Value], called: Called) -> Value:
    attributes = {"scatter_dimension": mlir_text.integer(node.attributes["dimensions"][0]), **_groups(node), **_GLOBAL}
    return _each(node, operands, attributes, _combiner(node, called))


@rule("all-gather")
def _all_gather(node: Node, operands: Sequence[Value], _: Called) -> Value:
    attributes = {"all_gather_dim": mlir_text.integer(node.attributes["dimensions"][0]), **_groups(node), **_GLOBAL}
    return _each(node, operands, attributes)


@rule("collective-permute")
def _collective_permute(node: Node, operands: Sequence[Value], _: Called) -> Value:
    pairs = {"source_target_pairs": mlir_text.pairs(node.attributes["source_target_pairs"])}
    return _each(node, operands, {**pairs, **_CHANNEL})


@rule("collective-broadcast")
def _collective_broadcast(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return _each(node, operands, {**_groups(node), **_CHANNEL})


@rule("all-to-all")
def _all_to_all(node: Node, operands: Sequence[Value], _: Called) -> Value:
    size = len(node.attributes["replica_groups"].groups[0])
    if "dimensions" in node.attributes:
        return _exchange(node, operands[0], node.attributes["dimensions"][0], size)
    # Operand k goes to device k of the group, result k comes from it: one exchange along a dimension of its own.
    stacked = lax.concatenate([lax.expand_dims(operand, (0,)) for operand in operands], 0)
    exchanged = _exchange(node, stacked, 0, size)
    results = tuple(lax.index_in_dim(exchanged, k, keepdims=False) for k in range(size))
    return results if isinstance(node.type, TupleType) else results[0]


def _exchange(node: Node, operand: Value, dimension: int, size: int) -> Value:
    attributes = {
        "split_dimension": mlir_text.integer(dimension),
        "concat_dimension": mlir_text.integer(dimension),
        "split_count": mlir_text.integer(size),
        **_groups(node),
        **_CHANNEL,
    }
    element = node.type.elements[0] if isinstance(node.type, TupleType) else node.type
    assert isinstance(element, TensorType)
    return operation("stablehlo.all_to_all", [operand], [TensorType(element.dtype, operand.shape)], attributes)[0]
