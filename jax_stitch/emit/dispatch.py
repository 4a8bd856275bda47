"""Which part of a kernel a block works on, and on which tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from jax_stitch.emit.lines import indent


@dataclass(frozen=True, slots=True)
class Call:
    """Of the function of a part, whose blocks are those from ``first`` to before ``last``."""

    function: str
    first: int
    last: int
    arguments: tuple[tuple[str, str], ...]
    """Type and name of each pointer it is given, in order."""
    rest: tuple[str, ...]
    """What comes after them, the same for all calls of the function."""


def chain(calls: Sequence[Call]) -> list[str]:
    """Statements that do the work of ``block``, which is of one of the calls; these are in the order of their blocks.

    Neighbours that call one function, as an optimizer does for tensors of one shape, become one call after a table of
    their pointers: code that is inlined once compiles in a fraction of the time, and has no values of other tensors to
    keep in registers.
    """
    runs = [list(group) for _, group in groupby(calls, lambda call: (call.function, call.rest))]
    lines: list[str] = []
    for k, run in enumerate(runs):
        condition = f"if (block < {run[-1].last}) " if k < len(runs) - 1 else ""
        start = f"{'else ' if k else ''}{condition}"
        if len(run) == 1:
            (call,) = run
            block = f"block - {call.first}" if call.first else "block"
            lines.append(f"{start}{_text(call, block, [name for _, name in call.arguments])}")
        else:
            lines += [f"{start}{{", *indent(list(_table(run))), "}"]
    return lines


def _table(run: Sequence[Call]) -> Iterator[str]:
    """One call for all of a run, after what differs between them."""
    columns = list(zip(*(call.arguments for call in run), strict=True))
    names = [f"array{k}" if len(set(column)) > 1 else column[0][1] for k, column in enumerate(columns)]
    own = [k for k, column in enumerate(columns) if len(set(column)) > 1]
    yield " ".join(["int64_t first;", *(f"{columns[k][0][0]} {names[k]};" for k in own)])
    for n, call in enumerate(run):
        condition = f"if (block < {call.last}) " if n < len(run) - 1 else ""
        values = [f"first = {call.first}", *(f"{names[k]} = {call.arguments[k][1]}" for k in own)]
        yield f"{'else ' if n else ''}{condition}{', '.join(values)};"
    yield _text(run[0], "block - first", names)


def _text(call: Call, block: str, names: Sequence[str]) -> str:
    return f"{call.function}({', '.join([block, *names, *call.rest])});"
