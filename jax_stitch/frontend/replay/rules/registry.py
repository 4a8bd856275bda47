"""The table of rules: how to say each HLO operation in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax_stitch.graph.model import Node

Value = Any
"""A JAX array; a tuple of values for a node of TupleType; None for a token."""

Called = Callable[[str], Callable[[Sequence[Value]], list[Value]]]
"""From an attribute's name ("body", "to_apply") to the function that the node calls there: arguments -> results."""

Rule = Callable[[Node, Sequence[Value], Called], Value]

RULES: dict[str, Rule] = {}


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """Register a rule for these opcodes."""

    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            assert opcode not in RULES, f"two rules for {opcode}"
            RULES[opcode] = function
        return function

    return register
