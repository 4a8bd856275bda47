"""A kernel as text that people read: ``parse`` reads it back.

Each node is a line of its keyword and its fields; what is inside it stands in braces, under the names of its fields
where there are several. Types and ranges stand only where they are not those of a declaration or loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from jax_stitch.ir.indices.expr import Div, Expr, Var, Within
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.context import Context, usual_type
from jax_stitch.kernel.forms import FieldForm, Kind, forms, keyword
from jax_stitch.kernel.literals import number


def text(kernel: model.Kernel) -> str:
    """Return the kernel as text."""
    return "\n".join(_Writer().lines(kernel)) + "\n"


def body_text(body: st.Body) -> str:
    """Return some statements as text, for messages and for looking at."""
    writer = _Writer()
    return "\n".join(line for s in body for line in writer.lines(s))


def line(node: Any) -> str:
    """Return a node by itself, without what is inside it."""
    return _Writer().head(node)


class _Writer:
    def __init__(self) -> None:
        self._context = Context()

    def lines(self, node: Any) -> Iterator[str]:
        """Yield a node and what is inside it."""
        kind = type(node)
        values = {f.name: getattr(node, f.name) for f in forms(kind)}
        head = self.head(node)
        self._context.enter(kind, values)
        inside = [f for f in forms(kind) if f.is_inside and values[f.name] not in ((), None)]
        if not inside:
            yield head
            return
        yield f"{head} {{"
        sections = sum(f.is_inside for f in forms(kind)) > 1
        for f in inside:
            nodes = values[f.name] if f.kind is Kind.NODES else (values[f.name],)
            yield from (f"  {line}" for line in self._section(f.name if sections else "", nodes))
        yield "}"

    def _section(self, name: str, nodes: tuple[Any, ...]) -> Iterator[str]:
        inner = (line for node in nodes for line in self.lines(node))
        if not name:
            yield from inner
            return
        yield f"{name} {{"
        yield from (f"  {line}" for line in inner)
        yield "}"

    def head(self, node: Any) -> str:
        """Return the line of a node."""
        match node:
            case st.Define(name, dtype, value):
                return f"let {name}: {dtype} = {self.value(value)}"
            case st.Allocate(name, dtype) if node.is_local:
                return f"var {name}: {dtype}"
            case st.Assign(target, value, who):
                only = "" if who is None else f"only {who.name.lower()}: "
                return f"{only}{self.value(target)} = {self.value(value)}"
            case st.Case(tests):
                return f"if {' and '.join(map(self._test, tests))}" if tests else "else"
        shown = [
            f"{f.name}={self._field(f, getattr(node, f.name))}"
            for f in forms(type(node))
            if not f.is_inside and getattr(node, f.name) != f.default
        ]
        if isinstance(node, st.Apply):  # Its first field is the keyword.
            return " ".join([node.intrinsic, *shown[1:]])
        return " ".join([keyword(type(node)), *shown])

    def _field(self, form: FieldForm, value: Any) -> str:
        if value is None:
            return "none"
        match form.kind:
            case Kind.INT:
                return str(value)
            case Kind.BOOL:
                return str(value).lower()
            case Kind.NAMED:
                return value.name.lower()
            case Kind.AXIS:
                return f"{value.how.name.lower()}({value.variable}, {value.extent})"
            case Kind.WORD:
                return _word(value)
            case Kind.INDEX:
                return self.index(value)
            case Kind.VALUE:
                return self.value(value)
            case Kind.WORDS:
                return f"[{', '.join(map(_word, value))}]"
            case Kind.INTS:
                return f"[{', '.join(map(str, value))}]"
            case Kind.INDICES:
                return f"[{', '.join(map(self.index, value))}]"
            case _:
                return f"[{', '.join(map(self.value, value))}]"

    def _test(self, test: ex.Test) -> str:
        bounds = "..".join("" if b is None else str(b) for b in (test.low, test.high))
        return f"{self.index(test.value)} in {bounds}{f' step {test.step}' if test.step > 1 else ''}"

    # -- expressions

    def value(self, value: ex.Value) -> str:
        """Return an expression."""
        match value:
            case ex.Literal(dtype):
                return f"{_number(value)}:{dtype}"
            case ex.Ref(name, dtype):
                return name + self._typed(dtype, self._context.types.get(name))
            case ex.Element(array, at, dtype, vector, hidden):
                usual = self._context.types.get(array)
                marks = f"{f' as {vector}' if vector else ''}{f' hiding {hidden}' if hidden else ''}"
                return f"{array}[{self.index(at)}{marks}]{self._typed(dtype, usual)}"
            case ex.Field(of, k, dtype):
                return f"{self.value(of)}.{k}{self._typed(dtype, self._context.field_type(of, k))}"
            case ex.Op(opcode, dtype, operands, attributes):
                given = "".join(f", {name}={v if isinstance(v, int) else _word(v)}" for name, v in attributes)
                typed = self._typed(dtype, usual_type(value))
                return f"{opcode.replace('-', '_')}{typed}({', '.join(map(self.value, operands))}{given})"
            case ex.Combine(combiner, left, right):
                return f"@{combiner}({self.value(left)}, {self.value(right)})"
            case ex.Make(combiner, operands):
                return f"@{combiner}<{', '.join(map(self.value, operands))}>"
            case _:
                return self._less_usual(value)

    def _less_usual(self, value: ex.Value) -> str:
        match value:
            case ex.IndexValue(at, dtype, narrow):
                return f"{'narrow' if narrow else 'index'}:{dtype}({self.index(at)})"
            case ex.Counter(variable, start, by, dtype, in_indices):
                return f"{'index_counter' if in_indices else 'counter'}:{dtype}({variable}, {start}, {by})"
            case ex.Products(dtype, pairs):
                return f"products:{dtype}({', '.join(self.value(v) for pair in pairs for v in pair)})"
            case ex.Fused(dtype, left, right, addend):
                return f"fused:{dtype}({', '.join(map(self.value, (left, right, addend)))})"
            case ex.Pick(at, low, choices, dtype):
                return f"pick:{dtype}({self.index(at)}, {low}, {', '.join(map(self.value, choices))})"
            case ex.Start(of, high):
                return f"start({self.value(of)}, {high})"
        raise AssertionError(f"{value} has no text")

    @staticmethod
    def _typed(dtype: str, usual: str | None) -> str:
        return "" if dtype == usual else f":{dtype}"

    def index(self, e: Expr) -> str:
        """Return an index expression."""
        text = ""
        for atom, c in e.terms:
            piece = self._atom(atom)
            piece = piece if abs(c) == 1 else f"{piece} * {abs(c)}"
            text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + piece
        if e.offset or not text:
            text += f" {'-' if e.offset < 0 else '+'} {abs(e.offset)}" if text else str(e.offset)
        return text

    def _atom(self, atom: Any) -> str:
        match atom:
            case Var(name, low, high):
                return name if self._context.ranges.get(name) == (low, high) else f"{name}{{{low}..{high}}}"
            case Within(of, low, high):
                return f"({self.index(of)} in {low}..{high})"
        return f"({self.index(atom.of)} {'/' if isinstance(atom, Div) else '%'} {atom.by})"


def _word(value: str) -> str:
    return value if re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII) else json.dumps(value)


def _number(constant: ex.Literal) -> str:
    value = number(constant)
    if constant.dtype == "pred":
        return "true" if value else "false"
    if np.issubdtype(type(value), np.floating):
        return str(value) if np.isfinite(value) else f"0x{constant.bits:x}"
    return str(int(value))
