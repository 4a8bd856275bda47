"""The table of rules: how to say each HLO operation in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...graph.model import Node

Value = Any
"""A JAX array; a tuple of values for a node of TupleType; None for a token."""

Called = Callable[[str], Callable[[Sequence[Value]], list[Value]]]
"""From an attribute's name ("body", "to_apply") to the function that the node calls there: arguments -> results."""

Rule = Callable[[Node, Sequence[Value], Called], Value]
Check = Callable[[Node], str | None]

RULES: dict[str, Rule] = {}
CHECKS: dict[str, Check] = {}
"""Per opcode, what tells why a node of it cannot be replayed although the opcode has a rule."""


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """Register a rule for these opcodes."""

    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            assert opcode not in RULES, f"two rules for {opcode}"
            RULES[opcode] = function
        return function

    return register


def check(*opcodes: str) -> Callable[[Check], Check]:
    """Register a check for these opcodes: it returns the reason why the node cannot be replayed, or None."""

    def register(function: Check) -> Check:
        for opcode in opcodes:
            assert opcode not in CHECKS, f"two checks for {opcode}"
            CHECKS[opcode] = function
        return function

    return register
