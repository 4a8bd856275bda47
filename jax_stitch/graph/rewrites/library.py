"""Calls that XLA made of plain operations, turned back: replayed, XLA makes the same call of them again."""

from __future__ import annotations

from ..builder import Builder
from ..model import Node, TensorType, TupleType


def restore_triangular_solve(builder: Builder, node: Node) -> int | None:
    """Restore element 0 of cuBLAS's triangular solve (element 1 is its scratch memory)."""
    call = _called_by_element(builder, node, "__cublas$triangularSolve", index=0)
    if call is None:
        return None
    config = call.attributes["backend_config"]
    keys = ("left_side", "lower", "unit_diagonal", "transpose_a")
    attributes = {key: config[key] for key in keys if key in config}
    return builder.derive(call, "triangular-solve", node.type, call.operands, attributes)


def restore_topk(builder: Builder, node: Node) -> int | None:
    """Return an element of the TopK call, XLA:CPU's or XLA:GPU's: the same of ``topk``."""
    call = _called_by_element(builder, node, "TopK") or _called_by_element(builder, node, "__gpu$TopK")
    if call is None:
        return None
    assert isinstance(call.type, TupleType) and isinstance(call.type.elements[0], TensorType)
    attributes = {"k": call.type.elements[0].dims[-1], "largest": True}
    topk = builder.derive(call, "topk", call.type, call.operands, attributes)
    return builder.derive(node, "get-tuple-element", node.type, [topk], node.attributes)


def _called_by_element(builder: Builder, node: Node, target: str, index: int | None = None) -> Node | None:
    if node.op != "get-tuple-element" or index not in (None, node.attributes["index"]):
        return None
    call = builder[node.operands[0]]
    is_call = call.op == "custom-call" and call.attributes["custom_call_target"] == target
    return call if is_call else None
