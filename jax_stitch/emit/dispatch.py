"""Which part of a kernel a block works on, and on which tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from jax_stitch.emit.cpp.lines import indent


class Call(Struct, frozen=True):
    """Of the function of a part, whose blocks are those from ``first`` to before ``last``."""

    function: str
    first: int
    last: int
    arguments: tuple[tuple[str, str], ...]
    """Type and name of each pointer it is given, in order."""
    rest: tuple[str, ...]
    """What comes after them, the same for all calls of the function."""


def chain(calls: Sequence[Call]) -> list[str]:
    """Return statements that do the work of ``block``, which is of one of the calls; these are in the order of their
    blocks.

    Neighbours that call one function, as an optimizer does for tensors of one shape, become one call after a table of
    their pointers: code that is inlined once compiles in a fraction of the time, and has no values of other tensors to
    keep in registers.
    """
    groups = [list(group) for _, group in groupby(calls, lambda call: (call.function, call.rest))]
    return _searched([(group[-1].last, _of_group(group)) for group in groups])


def _searched(choices: Sequence[tuple[int, Sequence[str]]]) -> list[str]:
    """Return the statement of ``block``, among statements each for the blocks below a number, by binary search: an
    optimizer has a hundred tensors.
    """
    if len(choices) == 1:
        return list(choices[0][1])
    half = (len(choices) + 1) // 2
    below, above = _searched(choices[:half]), _searched(choices[half:])
    condition = f"if (block < {choices[half - 1][0]}) "
    return [*_under(condition, below), *_under("else ", above)]


def _under(condition: str, lines: Sequence[str]) -> list[str]:
    if len(lines) == 1 or lines[0] == "{":
        return [f"{condition}{lines[0]}", *lines[1:]]
    return [f"{condition}{{", *indent(list(lines)), "}"]


def _of_group(group: Sequence[Call]) -> list[str]:
    if len(group) > 1:
        return ["{", *indent(list(_table(group))), "}"]
    (call,) = group
    block = f"block - {call.first}" if call.first else "block"
    return [_text(call, block, [name for _, name in call.arguments])]


def _table(group: Sequence[Call]) -> Iterator[str]:
    """Yield one call for all of a run, after what differs between them."""
    columns = list(zip(*(call.arguments for call in group), strict=True))
    names = [f"array{k}" if len(set(column)) > 1 else column[0][1] for k, column in enumerate(columns)]
    own = [k for k, column in enumerate(columns) if len(set(column)) > 1]
    yield " ".join(["int64_t first;", *(f"{columns[k][0][0]} {names[k]};" for k in own)])
    values = ([f"first = {c.first}", *(f"{names[k]} = {c.arguments[k][1]}" for k in own)] for c in group)
    yield from _searched([(c.last, [f"{', '.join(v)};"]) for c, v in zip(group, values, strict=True)])
    yield _text(group[0], "block - first", names)


def _text(call: Call, block: str, names: Sequence[str]) -> str:
    return f"{call.function}({', '.join([block, *names, *call.rest])});"
