"""Operations that make, move or cut arrays without calculating."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.graph.model import Node

from ..operation import operation, wide_indices
from . import mlir_text
from .registry import Called, Value, rule


@rule("constant")
def _constant(node: Node, _: Sequence[Value], __: Called) -> Value:
    assert node.literal is not None, f"constant {node.name} has lost its value"
    return jax.numpy.asarray(node.literal, dtype=node.literal.dtype)


@rule("iota")
def _iota(node: Node, _: Sequence[Value], __: Called) -> Value:
    type_ = node.tensor
    return lax.broadcasted_iota(ELEMENT_TYPES[type_.dtype].numpy, type_.dims, node.attributes["iota_dimension"])


@rule("broadcast")
def _broadcast(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.broadcast_in_dim(operands[0], node.tensor.dims, node.attributes["dimensions"])


@rule("reshape")
def _reshape(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.reshape(operands[0], node.tensor.dims)


@rule("opt-barrier")
def _settled(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return operands[0]  # What it keeps apart is planned by now.


@rule("transpose")
def _transpose(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.transpose(operands[0], node.attributes["dimensions"])


@rule("reverse")
def _reverse(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.rev(operands[0], node.attributes["dimensions"])


@rule("slice")
def _slice(node: Node, operands: Sequence[Value], _: Called) -> Value:
    starts, limits, strides = zip(*node.attributes["slice"], strict=True) if node.attributes["slice"] else ((), (), ())
    return lax.slice(operands[0], starts, limits, strides)


@rule("dynamic-slice")
def _dynamic_slice(node: Node, operands: Sequence[Value], _: Called) -> Value:
    # lax.dynamic_slice would count negative starts from the end; HLO clamps them.
    attributes = {"slice_sizes": mlir_text.integers(node.tensor.dims)}
    operands = [operands[0], *map(wide_indices, operands[1:])]
    return operation("stablehlo.dynamic_slice", operands, [node.tensor], attributes)[0]


@rule("dynamic-update-slice")
def _dynamic_update_slice(node: Node, operands: Sequence[Value], _: Called) -> Value:
    operands = [*operands[:2], *map(wide_indices, operands[2:])]
    return operation("stablehlo.dynamic_update_slice", operands, [node.tensor])[0]


@rule("concatenate")
def _concatenate(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.concatenate(operands, node.attributes["dimensions"][0])


@rule("pad")
def _pad(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return lax.pad(operands[0], operands[1], node.attributes["padding"])


@rule("gather")
def _gather(node: Node, operands: Sequence[Value], _: Called) -> Value:
    a = node.attributes
    numbers = {
        "offset_dims": mlir_text.listed(a["offset_dims"]),
        "collapsed_slice_dims": mlir_text.listed(a["collapsed_slice_dims"]),
        "operand_batching_dims": mlir_text.listed(a.get("operand_batching_dims", ())),
        "start_indices_batching_dims": mlir_text.listed(a.get("start_indices_batching_dims", ())),
        "start_index_map": mlir_text.listed(a["start_index_map"]),
        "index_vector_dim": str(a["index_vector_dim"]),
    }
    attributes = {
        "dimension_numbers": mlir_text.fields("gather", numbers),
        "slice_sizes": mlir_text.integers(a["slice_sizes"]),
        "indices_are_sorted": mlir_text.boolean(a.get("indices_are_sorted", False)),
    }
    operands = [operands[0], wide_indices(operands[1])]
    return operation("stablehlo.gather", operands, [node.tensor], attributes)[0]


@rule("tuple")
def _tuple(_: Node, operands: Sequence[Value], __: Called) -> Value:
    return tuple(operands)


@rule("get-tuple-element")
def _get_tuple_element(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return operands[0][node.attributes["index"]]


@rule("after-all")
def _after_all(_: Node, __: Sequence[Value], ___: Called) -> Value:
    return None
