"""C++ as HTML, with comments, directives, words and numbers marked: where no script does it."""

from __future__ import annotations

import re
from html import escape

TOKEN = re.compile(
    r"(?P<c>//[^\n]*|/\*.*?\*/)|(?P<d>^[ \t]*\#[^\n]*)|(?P<s>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<k>\b(?:alignas|auto|bool|break|case|char|const|constexpr|continue|do|double|else|extern|float|for|if|inline|int|"
    r"int8_t|int16_t|int32_t|int64_t|long|namespace|return|short|signed|sizeof|static|struct|switch|template|typename|"
    r"uint8_t|uint16_t|uint32_t|uint64_t|unsigned|using|void|while)\b)"
    r"|(?P<n1>\b(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)[fFuUlL]*\b)",
    re.DOTALL | re.MULTILINE,
)

STYLES = {
    "c": "opacity:.65;font-style:italic",
    "d": "color:#0a7d5a",
    "k": "color:#8250df",
    "n1": "color:#b35900",
}
"""By kind, in place: a notebook's page has styles of its own."""


def highlight(source: str) -> str:
    """Return the text of a kernel as HTML."""
    parts: list[str] = []
    end = 0
    for match in TOKEN.finditer(source):
        parts.append(escape(source[end : match.start()]))
        text, kind = escape(match.group()), match.lastgroup or "s"
        parts.append(f'<span style="{STYLES[kind]}">{text}</span>' if kind in STYLES else text)
        end = match.end()
    return "".join([*parts, escape(source[end:])])
