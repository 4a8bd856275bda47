"""Expansion of batched products of a matrix and a vector, whose matrix XLA would transpose first, into multiplications
and sums: one query of an attention over a cache of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from hlo_parser import ELEMENT_TYPES
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import as_calls
from jax_stitch.graph.builder import Builder, copied
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.graph.rewrites.simplify import simplify_movement

TRANSPOSED_SECONDS = 3e-9
"""Seconds of a core for each element of a matrix that XLA:CPU transposes. Measured: 3.4 to 5.6 ns."""

LEAST_BYTES = 1 << 16
"""The smallest matrix that is read where it lies: what XLA takes for a smaller one is its call."""


def vector_products(graph: Graph, device: Device) -> Graph:
    """Return the graph with its products of transposed matrices and vectors expanded."""
    chosen = {n.id: side for n in graph.nodes if (side := _matrix(graph, n)) is not None}
    if not chosen:
        return graph

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        if node.id not in chosen:
            return None
        return _expanded(builder, node, [ids[o] for o in node.operands], chosen[node.id], device)

    return copied(graph, instead, (simplify_movement,))


def _matrix(graph: Graph, node: Node) -> int | None:
    """Return which operand of a product is a matrix that XLA transposes first, where the other one is a vector."""
    if node.op != "dot" or node.tensor.dtype not in ("f32", "f64") or not node.attributes.get("lhs_batch_dims"):
        return None
    for side in (0, 1):
        matrix, vector = graph[node.operands[side]], graph[node.operands[1 - side]]
        if matrix.tensor.dtype != node.tensor.dtype or vector.tensor.dtype != node.tensor.dtype:
            continue
        batch, contracted = (_dims(node, side, kind) for kind in ("batch", "contracting"))
        shared = prod(matrix.tensor.dims[d] for d in (*batch, *contracted))
        is_vector = vector.tensor.size == shared
        if is_vector and node_bytes(matrix) >= LEAST_BYTES and _is_transposed(graph, matrix):
            return side
    return None


def _is_transposed(graph: Graph, node: Node) -> bool:
    while node.op == "reshape":
        node = graph[node.operands[0]]
    return node.op == "transpose"


def _dims(node: Node, side: int, kind: str) -> tuple[int, ...]:
    return tuple(node.attributes.get(f"{('lhs', 'rhs')[side]}_{kind}_dims", ()))


def _expanded(builder: Builder, node: Node, operands: list[int], side: int, device: Device) -> int:
    matrix, vector = operands[side], operands[1 - side]
    type_, batch, contracted = builder[matrix].tensor, _dims(node, side, "batch"), _dims(node, side, "contracting")
    vector_batch, vector_contracted = (_dims(node, 1 - side, kind) for kind in ("batch", "contracting"))
    dims = builder[vector].tensor.dims
    kept = [d for d in range(len(dims)) if d in vector_batch or d in vector_contracted]
    at = dict(zip((*vector_batch, *vector_contracted), (*batch, *contracted), strict=True))
    order = sorted(kept, key=lambda d: at[d])
    flat = builder.derive(node, "reshape", TensorType(type_.dtype, tuple(dims[d] for d in kept)), [vector])
    turned = TensorType(type_.dtype, tuple(dims[d] for d in order))
    moved = tuple(kept.index(d) for d in order)
    flat = builder.derive(node, "transpose", turned, [flat], {"dimensions": moved})
    wide = builder.derive(node, "broadcast", type_, [flat], {"dimensions": tuple(at[d] for d in order)})
    terms = builder.derive(node, "multiply", type_, [matrix, wide])
    rest = [d for d in range(len(type_.dims)) if d not in contracted]
    zero = builder.constant(node, type_.dtype, np.zeros((), ELEMENT_TYPES[type_.dtype].numpy))
    total = builder.reduce(node, "add", [terms, zero], sorted(contracted))
    leading = (*batch, *(d for d in rest if d not in batch))
    placed = TensorType(type_.dtype, tuple(type_.dims[d] for d in leading))
    total = builder.derive(node, "transpose", placed, [total], {"dimensions": tuple(rest.index(d) for d in leading)})
    seconds = type_.size * TRANSPOSED_SECONDS / device.multiprocessors
    return builder.derive(node, "reshape", node.type, [total], as_calls(seconds, device))
