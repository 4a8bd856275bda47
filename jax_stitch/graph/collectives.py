"""Which programs exchange values with other devices."""

from __future__ import annotations

from hlo_parser import Module

COLLECTIVES = (
    *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
    *("ragged-all-to-all", "reduce-scatter", "send", "recv"),
)
"""Opcodes of operations that wait for other devices; those that are begun and ended apart have ``-start`` behind."""


def has_collectives(module: Module) -> bool:
    """Return whether any operation of a program waits for other devices."""
    opcodes = {i.opcode.removesuffix("-start") for c in module.computations for i in c}
    return not opcodes.isdisjoint(COLLECTIVES)
