"""What the attributes of a product say about its two operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_stitch.graph.model import Node

_PRECISION = "operand_precision"
FULL: Mapping[str, Any] = {_PRECISION: ("highest", "highest")}
"""Of a product that stands for sums written out: rounded no more than these are."""


def sides_exchanged(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a product whose operands are exchanged, where it had these."""
    found = precision_exchanged(attributes)
    for kind in ("contracting", "batch"):
        left, right = f"lhs_{kind}_dims", f"rhs_{kind}_dims"
        found[left], found[right] = attributes.get(right, ()), attributes.get(left, ())
    return found


def precision_exchanged(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with what they say of each operand's precision exchanged; dimensions stay."""
    of_both = attributes.get(_PRECISION)
    return {**attributes, _PRECISION: tuple(of_both)[::-1]} if of_both else dict(attributes)


def has_default_precision(node: Node) -> bool:
    """Return whether a product's factors may be rounded as the device's tensor cores take them: nobody asked for more,
    and its sums are f32.
    """
    wanted = set(node.attributes.get(_PRECISION, ())) - {"default"}
    return not wanted and node.attributes.get("algorithm") in _BY_TENSOR_CORES


_BY_TENSOR_CORES = frozenset({None, "dot_tf32_tf32_f32", "dot_bf16_bf16_f32", "dot_f16_f16_f32"})
"""Algorithms of products that tensor cores have as they are."""
