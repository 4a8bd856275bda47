"""Why a node cannot be said in JAX although its opcode has a rule (``rules/``). Without JAX: planners ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jax_stitch.graph.model import Node, TensorType, TupleType
from jax_stitch.graph.opcodes import calls_python

ALGORITHMS: dict[str, tuple[str, str, int]] = {
    "dot_f16_f16_f16": ("f16", "f16", 1),
    "dot_f16_f16_f32": ("f16", "f32", 1),
    "dot_bf16_bf16_bf16": ("bf16", "bf16", 1),
    "dot_bf16_bf16_f32": ("bf16", "f32", 1),
    "dot_bf16_bf16_f32_x3": ("bf16", "f32", 3),
    "dot_bf16_bf16_f32_x6": ("bf16", "f32", 6),
    "dot_bf16_bf16_f32_x9": ("bf16", "f32", 9),
    "dot_tf32_tf32_f32": ("tf32", "f32", 1),
    "dot_tf32_tf32_f32_x3": ("tf32", "f32", 3),
    "dot_f32_f32_f32": ("f32", "f32", 1),
    "dot_f64_f64_f64": ("f64", "f64", 1),
}
"""Name in HLO -> type of the operands as multiplied, type of the sum, products per multiplication."""

API_VERSIONS: dict[str, int] = {
    "API_VERSION_UNSPECIFIED": 1,
    "API_VERSION_ORIGINAL": 1,
    "API_VERSION_STATUS_RETURNING": 2,
    "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
    "API_VERSION_TYPED_FFI": 4,
}
"""The interfaces of custom calls, by HLO's name; a call that names none has the first."""

_NAMES_DEVICES = frozenset({"all-reduce", "all-gather", "reduce-scatter"})

_NUMBER = re.compile(r"\bindex = (\d+)")


def callback_number(node: Node) -> int:
    """Return the number of the Python function that a node calls."""
    match = _number_match(node)
    assert match is not None, f"{node.name} does not say which function it calls"
    return int(match[1])


def _number_match(node: Node) -> re.Match[str] | None:
    return _NUMBER.search(getattr(node.attributes.get("backend_config"), "text", None) or "")


def _check_collective(node: Node) -> str | None:
    a: Mapping[str, Any] = node.attributes
    by_number = a.get("use_global_device_ids", False) or node.op not in _NAMES_DEVICES
    if "channel_id" not in a or not by_number:
        return "it works between replicas, not between partitions, of the program"
    if node.op == "collective-permute":
        return "it moves slices" if "slice_sizes" in a else None
    groups = getattr(a.get("replica_groups"), "groups", ())
    if not groups:
        return "it does not say which devices work together"
    if node.op != "all-reduce" and len(set(map(len, groups))) > 1:
        return "its groups of devices differ in size"
    return None


def _check_custom_call(node: Node) -> str | None:
    a = node.attributes
    target = a["custom_call_target"]
    if calls_python(node):
        return "it does not say which Python function it calls" if _number_match(node) is None else None
    if "callback" in target:
        return f"it calls back into Python ({target})"
    if target.startswith("__"):
        return f"only XLA's own passes may write a call to {target}"
    if str(a.get("api_version", "API_VERSION_ORIGINAL")) not in API_VERSIONS:
        return f"the call to {target} is by an interface of another version of XLA, {a['api_version']}"
    elements = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return None if all(isinstance(e, TensorType) for e in elements) else f"{target} returns what is no array"


def _check_dot(node: Node) -> str | None:
    algorithm = node.attributes.get("algorithm")
    if algorithm is not None and algorithm not in ALGORITHMS:
        return f"dot algorithm {algorithm}"
    return "sparse dot" if "sparsity" in node.attributes or len(node.operands) != 2 else None


def _check_topk(node: Node) -> str | None:
    return None if node.attributes.get("largest", True) else "the smallest elements of topk"


CHECKS: Mapping[str, Callable[[Node], str | None]] = {
    **dict.fromkeys(
        ("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "reduce-scatter"),
        _check_collective,
    ),
    "custom-call": _check_custom_call,
    "dot": _check_dot,
    "topk": _check_topk,
}
"""By opcode."""
