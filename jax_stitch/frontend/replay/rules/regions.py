"""Operations that apply a computation to scalars: reductions, windows, scatter, sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jax_stitch.graph.model import Node, TensorType, TupleType

from ..operation import Region, operation, wide_indices
from ..rounding import is_reordered, reordered
from . import mlir_text
from .registry import Called, Value, rule


def _results(node: Node) -> tuple[TensorType, ...]:
    elements = node.type.elements if isinstance(node.type, TupleType) else (node.tensor,)
    assert all(isinstance(e, TensorType) for e in elements)
    return elements  # type: ignore[return-value]


def _region(node: Node, called: Called, attribute: str) -> Region:
    graph = node.graphs[attribute]
    return Region(tuple(graph[p].tensor for p in graph.parameters), called(attribute))


def _apply(
    node: Node, name: str, operands: Sequence[Value], attributes: Mapping[str, str], regions: Sequence[Region]
) -> Value:
    values = operation(name, operands, _results(node), attributes, regions)
    return tuple(values) if isinstance(node.type, TupleType) else values[0]


@rule("reduce")
def _reduce(node: Node, operands: Sequence[Value], called: Called) -> Value:
    attributes = {"dimensions": mlir_text.integers(node.attributes["dimensions"])}
    if len(operands) > 2:  # Which of two equal elements is kept, and with it what of the others, their order decides.
        arrays = len(operands) // 2
        operands = [*reordered(node, operands[:arrays], node.attributes["dimensions"]), *operands[arrays:]]
    return _apply(node, "stablehlo.reduce", operands, attributes, [_region(node, called, "to_apply")])


def _window(window: Any) -> dict[str, str]:
    return {
        "window_dimensions": mlir_text.integers(d.size for d in window.dims),
        "window_strides": mlir_text.integers(d.stride for d in window.dims),
        "padding": mlir_text.pairs([(d.pad_low, d.pad_high) for d in window.dims]),
    }


@rule("reduce-window")
def _reduce_window(node: Node, operands: Sequence[Value], called: Called) -> Value:
    window = node.attributes["window"]
    attributes = {
        **_window(window),
        "base_dilations": mlir_text.integers(d.base_dilation for d in window.dims),
        "window_dilations": mlir_text.integers(d.window_dilation for d in window.dims),
    }
    return _apply(node, "stablehlo.reduce_window", operands, attributes, [_region(node, called, "to_apply")])


@rule("select-and-scatter")
def _select_and_scatter(node: Node, operands: Sequence[Value], called: Called) -> Value:
    regions = [_region(node, called, "select"), _region(node, called, "scatter")]
    return _apply(node, "stablehlo.select_and_scatter", operands, _window(node.attributes["window"]), regions)


@rule("scatter")
def _scatter(node: Node, operands: Sequence[Value], called: Called) -> Value:
    a = node.attributes
    numbers = {
        "update_window_dims": mlir_text.listed(a["update_window_dims"]),
        "inserted_window_dims": mlir_text.listed(a["inserted_window_dims"]),
        "input_batching_dims": mlir_text.listed(a.get("input_batching_dims", ())),
        "scatter_indices_batching_dims": mlir_text.listed(a.get("scatter_indices_batching_dims", ())),
        "scatter_dims_to_operand_dims": mlir_text.listed(a["scatter_dims_to_operand_dims"]),
        "index_vector_dim": str(a["index_vector_dim"]),
    }
    attributes = {
        "scatter_dimension_numbers": mlir_text.fields("scatter", numbers),
        "indices_are_sorted": mlir_text.boolean(a.get("indices_are_sorted", False)),
        "unique_indices": mlir_text.boolean(a.get("unique_indices", False)),
    }
    arrays = len(operands) // 2
    operands = [*operands[:arrays], wide_indices(operands[arrays]), *operands[arrays + 1 :]]
    return _apply(node, "stablehlo.scatter", operands, attributes, [_region(node, called, "to_apply")])


@rule("sort")
def _sort(node: Node, operands: Sequence[Value], called: Called) -> Value:
    is_stable = node.attributes.get("is_stable", False)
    given = operands
    if not is_stable and is_reordered():
        operands, is_stable = reordered(node, operands, node.attributes["dimensions"]), True
    attributes = {
        "dimension": mlir_text.integer(node.attributes["dimensions"][0]),
        "is_stable": mlir_text.boolean(is_stable),
    }
    found = _apply(node, "stablehlo.sort", operands, attributes, [_region(node, called, "to_apply")])
    return _unordered(node, given, found) if is_reordered() else found


def _unordered(node: Node, operands: Sequence[Value], found: Value) -> Value:
    """Return a sort's results in another order along lines without one: comparisons with what is no number are false
    both ways."""
    graph = node.graphs["to_apply"]
    partial = [n for n in graph.nodes if n.op == "compare" and "type" not in n.attributes]
    if not any(graph[o].tensor.dtype.startswith(("f", "bf")) for n in partial for o in n.operands):
        return found
    keys = [o for o in operands if jnp.issubdtype(o.dtype, jnp.floating)]
    none = sum(jnp.isnan(k).any(node.attributes["dimensions"], keepdims=True) for k in keys) > 0
    results = found if isinstance(found, tuple) else (found,)
    others = reordered(node, results, node.attributes["dimensions"])
    mixed = tuple(jnp.where(none, other, r) for other, r in zip(others, results, strict=True))
    return mixed if isinstance(found, tuple) else mixed[0]


@rule("topk")
def _topk(node: Node, operands: Sequence[Value], _: Called) -> Value:
    return tuple(lax.top_k(operands[0], node.attributes["k"]))
