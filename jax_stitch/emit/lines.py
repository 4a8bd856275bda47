"""Lines that every kind of part writes alike: indentation, tables of constants, and where its operations come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from jax_stitch.emit import scalar
from jax_stitch.graph.model import Graph, Node
from jax_stitch.util.text import one_line, shorten

MOST_SOURCES = 6
"""Source lines that a part's comment names."""

_LONGEST = 1000
"""Characters of a comment."""


def indent(lines: Sequence[str], by: int = 1) -> list[str]:
    return ["  " * by + line for line in lines]


def table_lines(graph: Graph, tables: Mapping[int, str]) -> list[str]:
    """The file-scope declarations of constant arrays, from their ids and names."""
    found: list[str] = []
    for i, name in tables.items():
        literal, dtype = graph[i].literal, graph[i].tensor.dtype
        assert literal is not None
        values = ", ".join(scalar.literal(v, dtype) for v in literal.reshape(-1))
        found.append(f"ST_TABLE {scalar.computed_type(dtype)} {name}[{literal.size}] = {{{values}}};")
    return found


def comment(text: str) -> str:
    """``text`` as a line of C++ that is a comment whatever it holds: the one way from a program's own words (file
    names, scopes, names of functions and parameters) into generated text.

    What is left are printable characters of one line, without those that mean something before comments are taken out
    or where a comment is quoted: backslashes (a last one continues the line), trigraphs (``??/`` is a backslash), the
    ends of comments of the other kind, double quotes.
    """
    plain = one_line(text).replace("\\", "/").replace('"', "'")
    plain = re.sub(r"\?(?=\?)", "? ", plain)
    plain = re.sub(r"\*(?=/)|/(?=\*)", lambda found: f"{found[0]} ", plain)
    return f"// {shorten(plain, _LONGEST)}"


def source_lines(nodes: Iterable[Node]) -> list[str]:
    """A comment that names the user's lines, if any is known."""
    sources = list(dict.fromkeys(n.source for n in nodes if n.source))
    more = f" and {len(sources) - MOST_SOURCES} more lines" if len(sources) > MOST_SOURCES else ""
    return [comment(f"from {', '.join(sources[:MOST_SOURCES])}{more}")] if sources else []
