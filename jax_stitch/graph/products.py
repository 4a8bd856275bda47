"""What the attributes of a product say about its two operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
