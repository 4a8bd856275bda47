"""A cursor over HLO text: the regular expressions and the few moves from which the grammar is built.

There is no separate token stream. Each rule of the grammar matches a compiled regular expression at the cursor, which
covers as much text as one expression can say, so that the time per instruction is a handful of matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..dtypes import ELEMENT_TYPES
from ..errors import HloParseError, nearest
from ..model import Computation, Instruction
from ..opcodes import words
from ..regex import regex
from ..shapes import ArrayShape, Shape
from ..values import Verbatim

MAX_DEPTH = 128
"""Deepest nesting of tuples, braces and dictionaries that is read; XLA prints a handful."""

MAX_INLINE_DEPTH = 32
"""Deepest nesting of computations written inside instructions."""

# White space and comments. Possessive and lazy-dot forms keep the matcher from recording positions, so that a
# long comment costs no memory.
SPACE = r"[ \t\r\n]*+(?:(?:/\*(?s:.*?)\*/|//[^\r\n]*+)[ \t\r\n]*+)*+"
COMMENT = r"(?:/\*(?s:.*?)\*/|//[^\r\n]*+)"
DIGITS = r"\d{1,20}+(?!\d)"  # of numbers that may fit 64 bits
NAME = r"[A-Za-z_][\w.\-]*+"

RESERVED = (
    words("""true false inf nan HloModule ENTRY ROOT FileLocations FileNames FunctionNames StackFrames maximal
    replicated manual last_tile_dim_replicate shard_as shard_like unknown unreduced token opaque""")
    | ELEMENT_TYPES.keys()
)
"""Words that are names only with ``%`` before them."""

_SPACE = regex(SPACE, re.ASCII)
_NAME = regex(rf"{SPACE}(?:%({NAME})|({NAME})(:?))", re.ASCII)
_WORD = regex(rf"{SPACE}({NAME})", re.ASCII)
_KEY = regex(rf"{SPACE}([A-Za-z_][\w.\-]*+)={SPACE}", re.ASCII)
_INT = regex(rf"{SPACE}(-?{DIGITS})(?![\w.])", re.ASCII)
_STRING = regex(rf"""{SPACE}(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|'([^'\\]*+(?:\\.[^'\\]*+)*+)')""", re.ASCII)
_TOKEN = regex(rf"""{SPACE}(?:(?:[\w.%\-]++)|"[^"\n]*+"?|->|<=|[^\s]|\Z)""", re.ASCII)
_ESCAPE = regex(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_WRONG_ESCAPE = regex(r"""[^\\]*+(?:\\[0-7abefnrtvxXuU\\?'"][^\\]*+)*+\\[^0-7abefnrtvxXuU\\?'"]""")
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

# A bracket, a string or a comment, or a run of anything else: the steps over a value whose meaning is not known.
_PIECE = regex(
    r"""([({\[])|([)}\]])|(,|\n|//[^\n]*+)|"[^"\\]*+(?:\\.[^"\\]*+)*+"|/\*(?s:.*?)\*/|[^(){}\[\],\n"/]++|/""",
    re.ASCII,
)
_CLOSERS = {"(": ")", "{": "}", "[": "]"}


def unescape(text: str) -> str:
    """Return a string's content without C escapes. Octal and hexadecimal escapes are bytes of UTF-8."""
    if "\\" not in text:
        return text

    def byte(m: re.Match[str]) -> str:
        if m[1] or m[2]:
            return chr(int(m[1], 8) & 255 if m[1] else int(m[2], 16))
        return _SIMPLE_ESCAPES.get(m[3], m[3])

    raw = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ESCAPE.sub(byte, raw).encode("latin-1").decode("utf-8", "surrogateescape")


MissingOperand = Callable[["Scanner", dict[str, Instruction], Shape], str | None]


class Scanner:
    """Text, a position in it, and what has been read so far where reading it again would be a waste."""

    def __init__(self, text: str, strict: bool = False) -> None:
        self.text = text
        self.several = False  # whether modules may follow the first
        self.strict = strict  # whether only what XLA prints is read
        self.pos = 0
        self.shapes: dict[str, ArrayShape] = {}  # by text: a module repeats few shapes many times
        self.values: dict[tuple[str, str], Any] = {}  # attribute values by key and text
        self.computations: dict[str, Computation] = {}
        self.depth = 0  # of computations written inside instructions
        self.inline_computations = 0  # how many have been read
        self.nested = 0  # depth of instructions in the places of operands
        self.anonymous: dict[str, int] = {}  # how many of them had a name that begins so
        self.missing_operand: MissingOperand | None = None  # makes an operand that is named but nowhere computed
        self.inline_computation: Callable[[Scanner], str]  # set by the grammar of modules, which the others are part of

    def error(self, message: str, pos: int | None = None, suggestion: str | None = None) -> NoReturn:
        """Raise HloParseError at ``pos``, by default at the next token."""
        raise HloParseError(message, self.text, self.skip() if pos is None else pos, suggestion)

    def expected(self, what: str, known: Iterable[str] = ()) -> NoReturn:
        """Raise HloParseError: ``what`` was expected, the next token found."""
        pos = self.skip()
        m = _TOKEN.match(self.text, pos)
        token = m[0].strip() if m else ""
        shown = repr(token if len(token) <= 40 else token[:40] + "...") if token else "the end of the text"
        if not token:
            pos = len(self.text.rstrip())  # where something is missing, not at the end of blank lines
        self.error(f"expected {what}, found {shown}", pos, nearest(token.lstrip("%"), known) if token else None)

    def skip(self) -> int:
        """Move over white space and comments."""
        if self.text[self.pos : self.pos + 1] > "/":  # neither begins with such a character
            return self.pos
        m = _SPACE.match(self.text, self.pos)
        assert m is not None
        self.pos = m.end()
        if self.text.startswith("/*", self.pos):
            raise HloParseError("this comment has no end", self.text, self.pos)
        return self.pos

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match at the cursor and move behind what matched."""
        m = pattern.match(self.text, self.pos)
        if m is not None:
            self.pos = m.end()
        return m

    def accept(self, token: str) -> bool:
        """Move over ``token`` if it comes next."""
        if self.text.startswith(token, self.pos) or self.text.startswith(token, self.skip()):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str, why: str = "") -> None:
        if not self.accept(token):
            self.expected(repr(token) + (f" {why}" if why else ""))

    def at(self, token: str) -> bool:
        """Return whether ``token`` comes next."""
        return self.text.startswith(token, self.skip())

    def name(self, what: str) -> str:
        """Return an identifier, with or without ``%``; without, XLA takes a colon right behind it for a part of it."""
        m = self.match(_NAME)
        if m is None:
            self.expected(what)
        if m[3]:
            if self.strict:
                self.pos -= 1
        elif m[2] in RESERVED:
            self.pos = m.start(2)
            self.expected(what)
        return m[1] or m[2]

    def word(self, what: str) -> str:
        m = self.match(_WORD)
        return m[1] if m is not None else self.expected(what)

    def key(self, what: str) -> str:
        """Read ``key=``."""
        m = self.match(_KEY)
        return m[1] if m is not None else self.expected(what)

    def integer(self, what: str = "an integer") -> int:
        m = self.match(_INT)
        return int(m[1]) if m is not None else self.expected(what)

    def string(self, what: str = "a string in quotes") -> str:
        m = self.match(_STRING)
        if m is None:
            self.expected(what)
        text = m[1] if m[1] is not None else m[2]
        if "\n" in text and self.strict:
            self.error("this string goes on in the next line", m.start(1 if m[1] is not None else 2) - 1)
        if "\\" in text and (wrong := _WRONG_ESCAPE.match(text)):
            self.error("this is no escape sequence of C", m.start(1 if m[1] is not None else 2) + wrong.end() - 2)
        return unescape(text)

    def _around(self, pos: int) -> str:
        """Return the text at a place, short enough for a message."""
        return repr(self.text[pos : pos + 20].split("\n")[0])

    def verbatim(self) -> Verbatim:
        """Return a value of unknown meaning: all up to the next comma or line end outside brackets, strings and
        comments.
        """
        start = self.skip()
        open_brackets: list[tuple[str, int]] = []
        while m := _PIECE.match(self.text, self.pos):
            if m[1]:
                open_brackets.append((_CLOSERS[m[1]], self.pos))
            elif m[2]:
                if not open_brackets:
                    break
                closer, opened = open_brackets.pop()
                if closer != m[2]:
                    self.error(f"found {m[2]!r} before {closer!r} for the bracket in {self._around(opened)}", self.pos)
            elif m[3] and not open_brackets:
                break
            self.pos = m.end()
        if open_brackets:
            self.error(f"this bracket is never closed by {open_brackets[-1][0]!r}", open_brackets[-1][1])
        text = self.text[start : self.pos].rstrip()
        if not text:
            self.expected("a value")
        return Verbatim(text)
