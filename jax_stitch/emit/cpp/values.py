"""The kernel language's expressions as C++ against ``backend/runtime/``: what each name stands for, and how it is
written."""

from __future__ import annotations

from enum import Enum

import numpy as np
from msgspec import Struct

from jax_stitch.emit.cpp import scalar
from jax_stitch.ir.indices.expr import Div, Expr, Var, Within
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel.literals import number
from jax_stitch.kernel.model import Combiner
from jax_stitch.kernel.threads import Who

WHO: dict[Who | None, str] = {
    None: "",
    Who.FIRST_LANE: "ST_FIRST_LANE ",
    Who.ONE_THREAD: "ST_ONCE ",
    Who.FIRST_ROW: "if (row == 0) ",
}


class Kind(Enum):
    """What a name stands for, by the text that stands for it."""

    LOCAL = "{name}"
    ACCUMULATOR = "ST_A({name})"
    ROW = "ST_R({name})"
    REGISTERS = "ST_K({name})"
    TURN = "ST_V({name})"
    TILE = "ST_T({name})"
    SPLIT = "ST_S({name})"
    FRAGMENT = "ST_F({name})"
    REST = "{name}_rest"
    """The sum of the steps that do not fill a vector."""
    SQUARE = "ST_ACROSS_AT({name})"
    SHARED = "{name}[p_]"
    """An array of which each row has a piece: a thread's own place of it."""
    ARRAY = "array"
    """An array that is indexed as a whole."""


class Named(Struct, frozen=True):
    """What a name stands for. Of an array ``in_memory`` says that its elements are as in buffers; of one with a piece
    for each row ``size`` is that of a piece.
    """

    kind: Kind
    dtype: str
    size: int = 0
    in_memory: bool = False


def ctype(dtype: str) -> str:
    """Return the C++ type of a value of a type."""
    if dtype == ex.INDEX:
        return ex.INDEX
    return scalar.computed_type(dtype) if dtype in scalar.STORAGE else f"{dtype}::T"


def literal(constant: ex.Literal) -> str:
    return scalar.literal(np.asarray(number(constant)), constant.dtype)


def placed(dtypes: tuple[str, ...]) -> list[int]:
    """Return the fields in the order of their members in a combiner's ``T``. The widest come first: all padding is at
    the end, where it has a name: what makes a ``T`` then writes all its bytes, and the checking mode can ask that a
    byte is written before it is read.
    """
    return sorted(range(len(dtypes)), key=lambda k: -scalar.computed_bytes(dtypes[k]))


class Values:
    """Writes expressions. ``names`` is what is declared so far."""

    def __init__(self, combiners: tuple[Combiner, ...], lanes_fastest: bool, row_vector: int = 1):
        self.combiners = {c.name: c for c in combiners}
        self.names: dict[str, Named] = {}
        self.indices: dict[str, str] = {}
        """The text of names that only indices hold."""
        self._lanes_fastest = lanes_fastest
        self._row_vector = row_vector

    def text(self, value: ex.Value) -> str:
        """Return an expression."""
        match value:
            case ex.Literal():
                return literal(value)
            case ex.Ref():
                named = self._named(value.name)
                cell = self.cell(value)
                if named.kind is Kind.ROW and value.dtype == "pred":
                    return f"bool({cell})"
                return scalar.load(value.dtype, cell) if named.in_memory else cell
            case ex.Element():
                cell = self.cell(value)
                return scalar.load(value.dtype, cell) if self._named(value.array).in_memory else cell
            case ex.Field(of, k):
                return f"{self.text(of)}.f{k}"
            case ex.Op():
                return scalar.expression(value, [self.text(o) for o in value.operands])
            case ex.Combine(combiner, left, right):
                return f"{combiner}::combine({self.text(left)}, {self.text(right)})"
            case ex.Make(combiner, operands):
                texts = [self.text(o) for o in operands]
                order = placed(self.combiners[combiner].dtypes)
                return f"{combiner}::T{{{', '.join(texts[k] for k in order)}}}"
            case _:
                return self._less_usual(value)

    def _less_usual(self, value: ex.Value) -> str:
        match value:
            case ex.IndexValue(at, dtype, narrow):
                return f"{ctype(dtype) if narrow else 'index'}({self.index(at)})"
            case ex.Start(of, high):
                kind = "uint64_t" if ex.type_of(of)[0] == "u" else "int64_t"
                return f"index(st::clamp<{kind}>(0, {kind}({self.text(of)}), {high}))"
            case ex.Counter(variable, start, by, dtype, True):
                return f"{ctype(dtype)}({start} + {variable} * {by})"
            case ex.Counter(variable, start, by, dtype):
                t = ctype(dtype)
                return f"{t}({t}({start}) + {t}({variable}) * {t}({by}))"
            case ex.Products(dtype, pairs):
                terms = [f"{self.text(a)} * {self.text(b)}" for a, b in pairs]
                return " + ".join(terms) or scalar.literal(np.float64(0), dtype)
            case ex.Fused(dtype, left, right, addend):
                t = ctype(dtype)
                return f"st::fused({t}({self.text(left)}), {t}({self.text(right)}), {self.text(addend)})"
            case ex.Pick(at, low, choices):
                where, text = self.index(at), self.text(choices[-1])
                for p in reversed(range(len(choices) - 1)):
                    text = f"({where}) == {low + p} ? {self.text(choices[p])} : {text}"
                return text
        raise AssertionError(f"{value} has no text")

    def cell(self, cell: ex.Ref | ex.Element) -> str:
        """Return where a cell or an element is."""
        if isinstance(cell, ex.Ref):
            return self._named(cell.name).kind.value.format(name=cell.name)
        element = f"{cell.array}[{self.address(cell)}]"
        of = "ROWS" if self._row_vector > 1 else "VECTOR"
        return f"ST_OF_{of}({cell.vector}, {element})" if cell.vector else element

    def address(self, cell: ex.Element) -> str:
        """Return where an element is in its array, of which each row may have a piece."""
        named, at = self._named(cell.array), self.index(cell.at, cell.hidden)
        if named.kind is not Kind.SHARED:
            return at
        return f"r_ * {named.size} + {at}" if self._lanes_fastest else f"({at}) * TR_ + r_"

    def written(self, target: ex.Ref | ex.Element, value: ex.Value) -> str:
        """Return the assignment of a value to a target."""
        named = self._named(target.name if isinstance(target, ex.Ref) else target.array)
        text = f"({self.text(value)})" if isinstance(value, ex.Make) else self.text(value)
        return f"{self.cell(target)} = {scalar.store(target.dtype, text) if named.in_memory else text};"

    def _named(self, name: str) -> Named:
        named = self.names.get(name)
        assert named is not None, f"{name} is not declared"
        return named

    def tests(self, tests: ex.Tests) -> str:
        return " && ".join(self._test(t) for t in tests)

    def _test(self, test: ex.Test) -> str:
        text = self.index(test.value)
        bounds = [f"{text} >= {test.low}"] * (test.low is not None) + [f"{text} <= {test.high}"] * (
            test.high is not None
        )
        if test.step > 1:
            bounds.append(f"({text}) % {test.step} == 0")
        return " && ".join(bounds) or "true"

    def index(self, e: Expr, hidden: int = 0) -> str:
        """Return an index expression; the factor ``hidden`` of its variables is a variable."""
        text = ""
        for atom, c in e.terms:
            if isinstance(atom, Var):
                piece = self._variable(atom.name)
            elif isinstance(atom, Within):
                piece = f"({self.index(atom.of)})"
            else:
                piece = f"(({self.index(atom.of)}) {'/' if isinstance(atom, Div) else '%'} {atom.by})"
            factor = f"spaced_{hidden}" if isinstance(atom, Var) and abs(c) == hidden else f"{abs(c)}"
            piece = piece if abs(c) == 1 else f"{piece} * {factor}"
            text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + piece
        if e.offset or not text:
            text += f" {'-' if e.offset < 0 else '+'} {abs(e.offset)}" if text else str(e.offset)
        return text

    def _variable(self, name: str) -> str:
        """Return a name of what an index is computed from: a loop's own variable, or a value."""
        named = self.names.get(name)
        if named is None:
            return self.indices.get(name, name)
        text = named.kind.value.format(name=name)
        return text if named.dtype == ex.INDEX else f"index({text})"


def combiner_text(combiner: Combiner) -> str:
    """Return a combiner as a functor: its values' type ``T``, and ``T combine(T, T)``."""
    dtypes = combiner.dtypes
    values = Values((combiner,), True)
    values.names = {side: Named(Kind.LOCAL, combiner.name) for side in "ab"}
    lines = ""
    for d in combiner.body:
        lines += f"const {ctype(d.dtype)} {d.name} = {values.text(d.value)}; "
        values.names[d.name] = Named(Kind.LOCAL, d.dtype)
    results = [values.text(r) for r in combiner.results]
    result, alias = results[0], f"using T = {ctype(dtypes[0])};"
    if len(dtypes) > 1:
        order = placed(dtypes)
        sizes = [scalar.computed_bytes(t) for t in dtypes]
        padding = -sum(sizes) % max(sizes)
        members = [f"{scalar.computed_type(dtypes[k])} f{k};" for k in order]
        alias = f"struct T {{ {' '.join([*members, *[f'char padding[{padding}];'] * bool(padding)])} }};"
        result = f"T{{{', '.join(results[k] for k in order)}}}"
    return f"struct {combiner.name} {{ {alias} ST_MEMBER T combine(T a, T b) {{ {lines}return {result}; }} }};"
