"""Classes of instructions, and those that an operation of the kernel language takes for one element."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jax_stitch.ir.operations import HEAVY, TABLE
from jax_stitch.kernel.expressions import Op, type_of
from jax_stitch.kernel.literals import HALF

ARITHMETIC, CONVERT, ROUND, INTEGER_DIVIDE = "arithmetic", "convert", "round", "integer-divide"
LOAD, GATHER, STORE, SCATTER, KEEP = "load", "gather", "store", "scatter", "keep"
COMBINE, TREE, SCAN, TURN, GROUP, TEAM = "combine", "tree", "scan", "turn", "group", "team"
INTERLEAVE, EXCHANGE = "interleave", "exchange"

STRUCTURE = (LOAD, GATHER, STORE, SCATTER, INTERLEAVE, KEEP, COMBINE, TREE, SCAN, EXCHANGE, TURN, GROUP, TEAM)
"""Classes of instructions that are no HLO operation. A gather or scatter is an access whose neighbours in memory are
not those of the threads; to ``interleave`` is to take apart or join rows that lie between each other; ``keep`` is an
access to what a thread or a block keeps in memory; ``combine`` adds a value to an accumulator, ``tree`` is a step of
combining the lanes' results, ``scan`` of handing a lane's on, and ``exchange`` of the blocks of a cluster handing each
other theirs; a ``turn`` is what each start of an inner loop takes,
a ``group`` what each group of rows does, and ``team`` a clock of a team's phases.
"""
CLASSES = (ARITHMETIC, CONVERT, ROUND, INTEGER_DIVIDE, *sorted(o for o in HEAVY if not TABLE[o].made_of), *STRUCTURE)
"""All classes of instructions. The rest are operations of HLO that take more than one instruction."""

ACCESSES = (LOAD, GATHER, STORE, SCATTER)
"""Those that read and write memory."""

Work = defaultdict[str, float]
"""Instructions by class, for single elements: those of all threads together. An element of 64 bits counts as two."""

WIDE = frozenset({"f64", "s64", "u64"})
_INTEGERS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})


def instructions(op: Op) -> Iterator[tuple[str, float]]:
    """Yield the instructions of one operation on one element, by class, without those of its operands."""
    dtype, opcode = op.dtype, op.opcode
    weight = 2.0 if dtype in WIDE else 1.0
    if opcode in ("divide", "remainder") and dtype in _INTEGERS:
        yield INTEGER_DIVIDE, weight
    elif opcode in HEAVY:
        for made_of in TABLE[opcode].made_of or (opcode,):
            yield made_of, weight
    elif opcode == "convert":
        source = type_of(op.operands[0])
        if {source, dtype} - HALF != {"f32"}:  # Sub-word floats are held as f32: rounding is all that is left of it.
            same = {source, dtype} <= _INTEGERS or source == dtype
            yield (ARITHMETIC if same else CONVERT), max(weight, 2.0 if source in WIDE else 1.0)
    else:
        yield ARITHMETIC, weight
    if dtype in HALF:  # Computed in f32, then rounded.
        yield ROUND, 1.0
