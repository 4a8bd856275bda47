"""Lines that every kind of part writes alike: indentation, tables of constants, and where its operations come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from jax_stitch.graph.model import Graph, Node
from jax_stitch.kernel.literals import literal
from jax_stitch.kernel.model import Table
from jax_stitch.kernel.statements import Axis
from jax_stitch.util.formatting import one_line, shorten

MOST_SOURCES = 6
"""Source lines that a part's comment names."""

_LONGEST = 1000
"""Characters of a comment."""


def indent(lines: Sequence[str], by: int = 1) -> list[str]:
    return ["  " * by + line for line in lines]


def block(head: str, lines: Sequence[str], end: str = "}") -> list[str]:
    """Return ``lines`` in braces, behind the head of a loop, a condition or a function."""
    return [f"{head} {{" if head else "{", *indent(lines), end]


def extent(axis: Axis, name: str) -> int:
    """Return the extent of a loop whose macro binds a variable of this name; the loop's has to be of that name."""
    assert axis.variable == name, f"the macro of a loop over {axis.variable} binds {name}"
    return axis.extent


def tables(graph: Graph, names: Mapping[int, str]) -> tuple[Table, ...]:
    """Return constant arrays, from their ids and names."""
    tables_: list[Table] = []
    for i, name in names.items():
        values, dtype = graph[i].literal, graph[i].tensor.dtype
        assert values is not None
        tables_.append(Table(name, dtype, tuple(literal(v, dtype) for v in values.reshape(-1))))
    return tuple(tables_)


def described(text: str) -> str:
    """Return ``text`` as the rest of a comment line of C++, whatever it holds: the one way from a program's own words
    (file names, scopes, names of functions and parameters) into generated text.

    What is left are printable characters of one line, without those that mean something before comments are taken out
    or where a comment is quoted: backslashes (a last one continues the line), trigraphs (``??/`` is a backslash), the
    ends of comments of the other kind, double quotes.
    """
    plain = one_line(text).replace("\\", "/").replace('"', "'")
    plain = re.sub(r"\?(?=\?)", "? ", plain)
    plain = re.sub(r"\*(?=/)|/(?=\*)", lambda match: f"{match[0]} ", plain)
    return shorten(plain, _LONGEST)


def comment(text: str) -> str:
    """Return ``text`` as a comment line of C++."""
    return f"// {described(text)}"


def source_lines(nodes: Iterable[Node]) -> list[str]:
    """Return the words of a comment that names the user's lines, if any is known."""
    sources = list(dict.fromkeys(n.source for n in nodes if n.source))
    more = f" and {len(sources) - MOST_SOURCES} more lines" if len(sources) > MOST_SOURCES else ""
    return [described(f"from {', '.join(sources[:MOST_SOURCES])}{more}")] if sources else []
