"""The tokens of a kernel's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass


class KernelTextError(ValueError):
    """The text is not that of a kernel."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: its kind (``name``, ``number``, ``string``, ``mark``, ``line`` for the end of one, ``end``)."""

    kind: str
    text: str
    line: int


_PATTERN = re.compile(
    r"(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<mark>\.\.|[\[\](){}<>:=,.+\-*/%@])"
    r"|(?P<line>\n)"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<other>.)",
    re.ASCII,
)


class Tokens:
    """The tokens of a text, one after another."""

    def __init__(self, text: str):
        self._tokens: list[Token] = []
        line = 1
        for match in _PATTERN.finditer(text):
            kind = str(match.lastgroup)
            if kind == "other":
                raise KernelTextError(f"line {line}: unexpected {match.group()!r}")
            if kind != "blank":
                self._tokens.append(Token(kind, match.group(), line))
            line += kind == "line"
        self._tokens.append(Token("end", "", line))
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def is_next(self, *marks: str) -> bool:
        """Return whether the next tokens have these texts."""
        return all(self.peek(k).text == mark for k, mark in enumerate(marks))

    def take(self, mark: str) -> bool:
        """Go past a token of this text, if it is the next."""
        is_next = self.peek().text == mark and self.peek().kind != "string"
        self._at += is_next
        return is_next

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.error(f"{mark!r} is expected")

    def name(self) -> str:
        if self.peek().kind != "name":
            raise self.error("a name is expected")
        return self.next().text

    def word(self) -> str:
        """Return a name, or anything in quotes."""
        return json.loads(self.next().text) if self.peek().kind == "string" else self.name()

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        if self.peek().kind != "number" or not self.peek().text.isdigit():
            raise self.error("a whole number is expected")
        return sign * int(self.next().text)

    def end_line(self) -> None:
        """Go past the ends of lines; at least one stands here, or the end."""
        if self.peek().kind not in ("line", "end"):
            raise self.error("the end of the line is expected")
        self.skip_lines()

    def skip_lines(self) -> None:
        while self.peek().kind == "line":
            self._at += 1

    def error(self, what: str) -> KernelTextError:
        """Return an error at the next token."""
        token = self.peek()
        return KernelTextError(f"line {token.line}: {what}, not {token.text.strip() or 'the end'!r}")
