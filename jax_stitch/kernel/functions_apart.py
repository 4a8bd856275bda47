"""Loop distribution: a loop over rows with a long chain of dependent functions becomes several loops.

A function has a long latency, but a processor can start the next independent one soon. A loop with a chain of many
waits for each, row by row (or vector by vector); in loops with short chains, functions of other rows hide the latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jax_stitch.ir.operations import HEAVY
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import INDEX, Op, Ref
from jax_stitch.kernel.model import Kernel, Part, RowShape
from jax_stitch.kernel.walk import map_bodies, names_read, nodes
from jax_stitch.util.values import replace

FUNCTIONS = HEAVY - {"divide", "remainder", "rsqrt", "sqrt"}
"""Functions of dozens of instructions. A processor has room for several rows' divisions and roots at a time: an update
by Adam, of a root and a division, is as fast in one loop, and keeps no rows between two."""

MOST_CHAINED = 1
"""The most dependent functions in a loop over rows: with two, ten iterations of 64 rows took a quarter longer."""


def functions_apart(kernel: Kernel) -> Kernel:
    """Return the kernel with its loops over rows distributed where chains of functions in them are long."""
    return replace(kernel, parts=tuple(map(_part, kernel.parts)))


def _part(part: Part) -> Part:
    if not isinstance(part.shape, RowShape) or part.shape.rows_per_block == 1:
        return part
    shared: list[st.Statement] = []
    body = _body(part.body, shared)
    return replace(part, body=(*shared, *body)) if shared else part


def _body(body: st.Body, shared: list[st.Statement]) -> st.Body:
    return tuple(new for s in body for new in _statement(s, shared))


def _statement(s: st.Statement, shared: list[st.Statement]) -> Iterator[st.Statement]:
    match s:
        case st.Rows(body):
            pieces = _pieces(body)
            crossing = _crossing(pieces)
            if INDEX in crossing.values():  # A row value cannot hold an index.
                yield s
                return
            shared += (st.Allocate.of_row(name, dtype) for name, dtype in crossing.items())
            for piece in pieces:
                yield replace(s, body=tuple(_kept(x, crossing) for x in piece if not _is_declared(x, crossing)))
        case st.For():
            yield map_bodies(s, lambda body: _body(body, shared))
        case _:
            yield s


def _pieces(body: st.Body) -> list[list[st.Statement]]:
    """Return the statements of each loop: a new one begins where a function depends on ``MOST_CHAINED`` others."""
    pieces: list[list[st.Statement]] = [[]]
    waits: dict[str, int] = {}
    for s in body:
        functions = any(isinstance(n, Op) and n.opcode in FUNCTIONS for n in nodes(s))
        before = max((waits.get(name, 0) for name in names_read(s)), default=0)
        if functions and before >= MOST_CHAINED:
            pieces.append([])
            waits, before = {}, 0
        pieces[-1].append(s)
        for name in _defined(s):
            waits[name] = before + functions
    return pieces


def _defined(s: st.Statement) -> Iterator[str]:
    """Yield the names that a statement defines or assigns."""
    for n in nodes(s):
        if isinstance(n, st.Define):
            yield n.name
        elif isinstance(n, st.Assign) and isinstance(n.target, Ref):
            yield n.target.name


def _crossing(pieces: Sequence[Sequence[st.Statement]]) -> dict[str, str]:
    """Return the names of one loop that a later one reads, and their types."""
    of_loop = {s.name: (k, s.dtype) for k, p in enumerate(pieces) for s in p if st.is_name(s)}
    read = ((name, k) for k, piece in enumerate(pieces) for s in piece for name in names_read(s))
    return {name: of_loop[name][1] for name, k in read if name in of_loop and of_loop[name][0] != k}


def _is_declared(s: st.Statement, crossing: dict[str, str]) -> bool:
    return isinstance(s, st.Allocate) and s.name in crossing


def _kept(s: st.Statement, crossing: dict[str, str]) -> st.Statement:
    if isinstance(s, st.Define) and s.name in crossing:
        return st.Assign(Ref(s.name, s.dtype), s.value)
    return s
