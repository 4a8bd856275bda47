"""Expressions and indices from a kernel's text."""

from __future__ import annotations

import numpy as np

from jax_stitch.ir.indices.expr import Atom, Div, Expr, Mod, Var, Within
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel.context import Context, usual_type
from jax_stitch.kernel.literals import literal, numpy_type
from jax_stitch.kernel.tokens import Tokens


class ValueParser:
    """Reads expressions."""

    def __init__(self, tokens: Tokens):
        self.tokens = tokens
        self.context = Context()

    # -- indices

    def index(self) -> Expr:
        """Return an index expression, its terms in their order."""
        terms: list[tuple[Atom, int]] = []
        offset = 0
        sign = -1 if self.tokens.take("-") else 1
        while True:
            if self.tokens.peek().kind == "number":
                offset += sign * self.tokens.integer()
            else:
                atom = self._atom()
                terms.append((atom, sign * (self.tokens.integer() if self.tokens.take("*") else 1)))
            if self.tokens.take("+"):
                sign = 1
            elif self.tokens.take("-"):
                sign = -1
            else:
                return _expr(terms, offset)

    def _atom(self) -> Atom:
        if not self.tokens.take("("):
            name = self.tokens.name()
            if self.tokens.take("{"):
                low, high = self._range()
                self.tokens.expect("}")
            elif name in self.context.ranges:
                low, high = self.context.ranges[name]
            else:
                raise self.tokens.error(f"the range of {name} is not known, and expected here")
            return Var(name, low, high)
        inner = self.index()
        atom: Atom
        if self.tokens.take("in"):
            atom = Within(inner, *self._range())
        elif self.tokens.take("/"):
            atom = Div(inner, self.tokens.integer())
        else:
            self.tokens.expect("%")
            atom = Mod(inner, self.tokens.integer())
        self.tokens.expect(")")
        return atom

    def _range(self) -> tuple[int, int]:
        low = self.tokens.integer()
        self.tokens.expect("..")
        return low, self.tokens.integer()

    def test(self) -> ex.Test:
        """Return a test of an index."""
        value = self.index()
        self.tokens.expect("in")
        low = None if self.tokens.is_next("..") else self.tokens.integer()
        self.tokens.expect("..")
        bounded = self.tokens.peek().kind == "number" or self.tokens.is_next("-")
        high = self.tokens.integer() if bounded else None
        return ex.Test(value, low, high, self.tokens.integer() if self.tokens.take("step") else 1)

    # -- values

    def value(self) -> ex.Value:
        """Return an expression."""
        value = self._primary()
        while self.tokens.take("."):
            k = self.tokens.integer()
            value = ex.Field(value, k, self._type(self.context.field_type(value, k)))
        return value

    def _primary(self) -> ex.Value:
        if self.tokens.is_next("-") or self.tokens.peek().kind == "number" or self.tokens.peek().text in _TRUTH:
            return self._literal()
        if self.tokens.take("@"):
            return self._of_combiner()
        name = self.tokens.name()
        called = self.tokens.is_next("(") or (self.tokens.is_next(":") and self.tokens.peek(2).text == "(")
        if called:
            return self._call(name)
        if self.tokens.take("["):
            at = self.index()
            vector = self.tokens.name() if self.tokens.take("as") else ""
            hidden = self.tokens.integer() if self.tokens.take("hiding") else 0
            self.tokens.expect("]")
            return ex.Element(name, at, self._type(self.context.types.get(name)), vector, hidden)
        return ex.Ref(name, self._type(self.context.types.get(name)))

    def _type(self, usual: str | None) -> str:
        if self.tokens.take(":"):
            return self.tokens.name()
        if usual is None:
            raise self.tokens.error("a type is expected")
        return usual

    def _literal(self) -> ex.Literal:
        negative = self.tokens.take("-")
        text = self.tokens.next().text
        self.tokens.expect(":")
        dtype = self.tokens.name()
        if text in _TRUTH:
            return literal(text == "true", dtype)
        if text.startswith("0x"):
            return ex.Literal(dtype, int(text, 16))
        kind = numpy_type(dtype)
        if np.issubdtype(kind, np.floating):
            number = kind.type(text)
            return literal(-number if negative else number, dtype)
        whole = int(text)
        return literal(np.array(-whole if negative else whole, kind), dtype)

    def _of_combiner(self) -> ex.Combine | ex.Make:
        name = self.tokens.name()
        if self.tokens.take("<"):
            operands = self.separated(">")
            return ex.Make(name, tuple(operands))
        self.tokens.expect("(")
        left, right = self.separated(")")
        return ex.Combine(name, left, right)

    def separated(self, end: str) -> list[ex.Value]:
        """Return expressions with commas between, up to a mark."""
        values: list[ex.Value] = []
        while not self.tokens.take(end):
            values.append(self.value())
            if not self.tokens.is_next(end):
                self.tokens.expect(",")
        return values

    def _call(self, name: str) -> ex.Value:
        dtype = self.tokens.name() if self.tokens.take(":") else ""
        self.tokens.expect("(")
        if name in _INDEXED:
            return self._of_index(name, dtype)
        if name == "start":
            of = self.value()
            self.tokens.expect(",")
            start = ex.Start(of, self.tokens.integer())
            self.tokens.expect(")")
            return start
        if name in ("products", "fused"):
            operands = self.separated(")")
            if name == "fused":
                return ex.Fused(dtype, *operands)
            return ex.Products(dtype, tuple(zip(operands[::2], operands[1::2], strict=True)))
        return self._operation(name.replace("_", "-"), dtype)

    def _operation(self, opcode: str, dtype: str) -> ex.Op:
        operands: list[ex.Value] = []
        attributes: list[tuple[str, str | int]] = []
        while not self.tokens.take(")"):
            if self.tokens.peek().kind == "name" and self.tokens.peek(1).text == "=":
                name = self.tokens.name()
                self.tokens.expect("=")
                is_number = self.tokens.peek().kind == "number"
                attributes.append((name, self.tokens.integer() if is_number else self.tokens.word()))
            else:
                operands.append(self.value())
            if not self.tokens.is_next(")"):
                self.tokens.expect(",")
        op = ex.Op(opcode, dtype, tuple(operands), tuple(attributes))
        return op if dtype else ex.Op(opcode, usual_type(op), op.operands, op.attributes)

    def _of_index(self, name: str, dtype: str) -> ex.Value:
        if name in ("counter", "index_counter"):
            variable = self.tokens.name()
            self.tokens.expect(",")
            start = self.tokens.integer()
            self.tokens.expect(",")
            value: ex.Value = ex.Counter(variable, start, self.tokens.integer(), dtype, name == "index_counter")
        elif name == "pick":
            at = self.index()
            self.tokens.expect(",")
            low = self.tokens.integer()
            self.tokens.expect(",")
            return ex.Pick(at, low, tuple(self.separated(")")), dtype)
        else:
            value = ex.IndexValue(self.index(), dtype, name == "narrow")
        self.tokens.expect(")")
        return value


_TRUTH = ("true", "false")
_INDEXED = ("index", "narrow", "counter", "index_counter", "pick")


def _expr(terms: list[tuple[Atom, int]], offset: int) -> Expr:
    low = high = offset
    for atom, c in terms:
        low += c * (atom.low if c > 0 else atom.high)
        high += c * (atom.high if c > 0 else atom.low)
    return Expr(tuple(terms), offset, low, high)
