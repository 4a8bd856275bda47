"""Instructions that match a pattern, such as ``reduce(multiply(*, $x), *)``.

A pattern is one of
- ``*``, which any instruction matches, and ``$x``, which any matches that ``$x`` stands for everywhere in the pattern;
- ``opcode``, with operands' patterns in parentheses where these matter (``...`` for any number of others), the opcode
  perhaps with ``*`` in it (``all-*``);
- ``f32 add``, ``f32[8,*] add`` or ``[*,*] add``: an opcode and the shape of the result;
- ``add{sharding={replicated}}``: with attributes that are written so (``*`` stands for any text), also those in the
  metadata: ``dot{op_name="*attention*"}``;
- ``$x=add(*, *)``: named, and one pattern ``|`` another.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from .errors import HloParseError
from .model import Computation, Instruction, Module
from .regex import regex
from .shapes import ArrayShape, without_layout
from .values import FrozenDict
from .write_attribute import quote, write_metadata
from .write_module import write_attribute

_DEEPEST = 64

_TOKEN = regex(
    r"\s*(?:(?P<name>\$\w+)(?P<is>\s*=(?!=))?|(?P<rest>\.\.\.)|(?P<word>[a-z*?][\w*?\-]*)?(?P<dims>\[[^\]]*\])?)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One alternative of a pattern; a ``name`` of its own, and "" or None for all that does not matter."""

    opcode: str = "*"
    name: str = ""
    dtype: str = ""
    dims: tuple[str, ...] | None = None
    operands: tuple[tuple[Pattern, ...], ...] | None = None
    others: bool = False
    """Whether more operands may follow."""
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """An instruction that matches, and what the names in the pattern stand for."""

    computation: str
    instruction: Instruction
    bindings: Mapping[str, str]

    def __str__(self) -> str:
        named = ", ".join(f"{name}=%{value}" for name, value in self.bindings.items())
        return f"%{self.computation}: {self.instruction}" + (f"  ({named})" if named else "")


def read_pattern(text: str) -> tuple[Pattern, ...]:
    """Return the alternatives of a pattern. Raises HloParseError with the place where it is none."""
    reader = _Reader(text)
    pattern = reader.alternatives(0)
    if reader.text[reader.pos :].strip():
        reader.error("expected '|' or the end of the pattern")
    return pattern


def find(module: Module, pattern: str | tuple[Pattern, ...]) -> list[Match]:
    """Return every instruction of the module that matches, in the order of the text."""
    wanted = read_pattern(pattern) if isinstance(pattern, str) else pattern
    matches = []
    for c in module.computations:
        for i in c:
            bindings = next(_matches(c, i, wanted, FrozenDict()), None)
            if bindings is not None:
                matches.append(Match(c.name, i, bindings))
    return matches


class _Reader:
    """A cursor over a pattern."""

    def __init__(self, text: str) -> None:
        self.text, self.pos = text, 0

    def error(self, message: str) -> NoReturn:
        at = self.pos + len(self.text[self.pos :]) - len(self.text[self.pos :].lstrip())
        raise HloParseError(message, self.text, at)

    def accept(self, token: str) -> bool:
        rest = self.text[self.pos :].lstrip()
        if not rest.startswith(token):
            return False
        self.pos = len(self.text) - len(rest) + len(token)
        return True

    def alternatives(self, depth: int) -> tuple[Pattern, ...]:
        if depth > _DEEPEST:
            self.error(f"patterns are nested deeper than {_DEEPEST} levels")
        patterns = [self.one(depth)]
        while self.accept("|"):
            patterns.append(self.one(depth))
        return tuple(patterns)

    def one(self, depth: int) -> Pattern:
        m = _TOKEN.match(self.text, self.pos)
        if m is None or not m[0].strip() or m["rest"]:
            self.error("expected a pattern: *, $name or an opcode")
        self.pos = m.end()
        name = ""
        if m["name"]:
            name = m["name"]
            if not m["is"]:
                return Pattern(name=name)
            m = _TOKEN.match(self.text, self.pos)
            if m is None or not (m["word"] or m["dims"]):
                self.error(f"expected what {name} should match")
            self.pos = m.end()
        opcode, dtype, dims = m["word"] or "", "", None
        if m["dims"] or not opcode or _is_word(self.text, self.pos):
            dtype = opcode
            dims = tuple(d.strip() for d in m["dims"][1:-1].split(",") if d.strip()) if m["dims"] else None
            m = _TOKEN.match(self.text, self.pos)
            if m is None or not m["word"] or m["dims"]:
                self.error("expected an opcode after the shape")
            opcode, self.pos = m["word"], m.end()
        operands, others = self.operands(depth) if self.accept("(") else (None, False)
        attributes = self.attributes() if self.accept("{") else ()
        return Pattern(opcode, name, dtype, dims, operands, others, attributes)

    def operands(self, depth: int) -> tuple[tuple[tuple[Pattern, ...], ...], bool]:
        patterns: list[tuple[Pattern, ...]] = []
        while not self.accept(")"):
            if patterns and not self.accept(","):
                self.error("expected ',' or ')' after an operand's pattern")
            if self.accept("..."):
                if not self.accept(")"):
                    self.error("expected ')' after '...'")
                return tuple(patterns), True
            patterns.append(self.alternatives(depth + 1))
        return tuple(patterns), False

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Read ``key=value, ...}``; the braces of values are counted."""
        pairs = []
        while not self.accept("}"):
            m = re.compile(r"\s*,?\s*([A-Za-z_][\w\-]*)=", re.ASCII).match(self.text, self.pos)
            if m is None:
                self.error("expected key=value or '}'")
            start = self.pos = m.end()
            depth = 0
            while self.pos < len(self.text) and (depth or self.text[self.pos] not in ",}"):
                depth += {"{": 1, "}": -1}.get(self.text[self.pos], 0)
                self.pos += 1
            if self.pos == len(self.text):
                self.error("expected '}' after the attributes")
            pairs.append((m[1], self.text[start : self.pos].strip()))
        return tuple(pairs)


def _is_word(text: str, pos: int) -> bool:
    return re.compile(r"\s+[a-z*?]", re.ASCII).match(text, pos) is not None


def _matches(
    c: Computation, i: Instruction, alternatives: tuple[Pattern, ...], bound: FrozenDict[str, str]
) -> Iterator[FrozenDict[str, str]]:
    """Yield each way in which an instruction matches, as what the names stand for."""
    for p in alternatives:
        if not (_fits(i, p) and bound.get(p.name, i.name) == i.name):
            continue
        named = bound | {p.name: i.name} if p.name else bound
        if p.operands is None:
            yield named
        elif len(i.operands) == len(p.operands) or (p.others and len(i.operands) > len(p.operands)):
            yield from _operands_match(c, i, p.operands, named)


def _operands_match(
    c: Computation, i: Instruction, patterns: tuple[tuple[Pattern, ...], ...], bound: FrozenDict[str, str]
) -> Iterator[FrozenDict[str, str]]:
    if not patterns:
        yield bound
        return
    last = len(patterns) - 1
    for named in _operands_match(c, i, patterns[:last], bound):
        yield from _matches(c, c[i.operands[last]], patterns[last], named)


def _fits(i: Instruction, p: Pattern) -> bool:
    """Return whether opcode, shape and attributes match."""
    if not fnmatch.fnmatchcase(i.opcode, p.opcode):
        return False
    if p.dtype or p.dims is not None:
        shape = without_layout(i.shape)
        if not isinstance(shape, ArrayShape) or not fnmatch.fnmatchcase(shape.dtype, p.dtype or "*"):
            return False
        if p.dims is not None and not (
            len(p.dims) == shape.rank and all(w in ("*", str(d)) for w, d in zip(p.dims, shape.dims, strict=True))
        ):
            return False
    return all(fnmatch.fnmatchcase(_written(i, key), _glob(value)) for key, value in p.attributes)


def _written(i: Instruction, key: str) -> str:
    if key == "metadata":
        return write_metadata(i.metadata)
    if key in i.metadata:
        value = i.metadata[key]
        return quote(value) if isinstance(value, str) else str(value)
    return write_attribute(key, i.attributes[key]).split("=", 1)[1] if key in i.attributes else ""


def _glob(value: str) -> str:
    """Return the pattern of a glob: ``*`` stands for any text; brackets mean themselves."""
    return value.replace("[", "[[]")
