"""Each name is declared before it is used, has a value before it is read, and its type is what the reader expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from hlo_parser.dtypes import COMPLEX_PARTS, ELEMENT_TYPES
from jax_stitch.ir.indices.expr import Expr
from jax_stitch.ir.indices.variables import BLOCK
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.context import Context, bound_by, declares
from jax_stitch.kernel.forms import forms, names_inside
from jax_stitch.kernel.intrinsics import TABLE, Function, Intrinsic, Use, defined
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.model import Combiner, Comparator, Parameter, Part, Table
from jax_stitch.kernel.verify.bounds import inside
from jax_stitch.kernel.verify.finding import Fault, Finding, shown
from jax_stitch.kernel.walk import children, field_names, variables

DECLARED = (st.Sum, st.Define, st.Allocate, st.Scan, st.Inside, st.Square)


class _Declared(Struct, frozen=True):
    kind: type[Any]
    dtype: str


class NameCheck:
    """Goes through a part's statements in order."""

    def __init__(self, part: Part):
        self._part = part
        self._context = Context()
        self._declared: dict[str, _Declared] = {}
        self._variables: set[str] = {BLOCK, *bound_by(part.shape)}
        self._with_value: set[str] = set()
        self._combiners = {c.name: c for c in part.combiners}
        self._orders = {c.name: c for c in part.comparators}
        for node in (part.shape, *part.combiners, *part.comparators, *part.tables, *part.parameters):
            self._context.enter(type(node), {f.name: getattr(node, f.name) for f in forms(type(node))})
        arrays: tuple[Parameter | Table, ...] = (*part.parameters, *part.tables)
        for named in arrays:
            self._declared[named.name] = _Declared(type(named), named.dtype)
            self._with_value.add(named.name)

    def findings(self) -> Iterator[Finding]:
        functions: tuple[Combiner | Comparator, ...] = (*self._part.combiners, *self._part.comparators)
        for function in functions:
            yield from self._function(function)
        for s in (*self._part.before, *self._part.body, *self._part.after):
            yield from self._statement(s)

    def _function(self, function: Combiner | Comparator) -> Iterator[Finding]:
        """Yield a combiner's or comparator's own names."""
        outer, held = dict(self._declared), set(self._with_value)
        self._context.enter(type(function), {f.name: getattr(function, f.name) for f in forms(type(function))})
        for side in "ab":
            self._declared[side] = _Declared(st.Define, self._context.types[side])
            self._with_value.add(side)
        for d in function.body:
            yield from self._statement(d)
        results = function.results if isinstance(function, Combiner) else (function.result,)
        wanted = function.dtypes if isinstance(function, Combiner) else ("pred",)
        for value, dtype in zip(results, wanted, strict=True):
            try:
                self._same(self._type(value), dtype, f"a result of {function.name}")
            except Fault as fault:
                yield Finding(self._part.name, str(fault), function.name)
        self._declared, self._with_value = outer, held

    def _statement(self, s: Any) -> Iterator[Finding]:
        try:
            self._check(s)
        except Fault as fault:
            yield Finding(self._part.name, str(fault), shown(s))
        if declares(type(s)):
            self._context.enter(type(s), {name: getattr(s, name) for name in field_names(type(s))})
        if names_inside(type(s)):
            yield from self._inside(s)
        self._declare(s)

    def _inside(self, s: Any) -> Iterator[Finding]:
        """Check what is inside a statement: the names that it declares end with it."""
        bound = bound_by(s).keys() | ({s.variable} if isinstance(s, st.For) else set())
        added = bound - self._variables
        self._variables |= added
        outer, held = dict(self._declared), set(self._with_value)
        for node in inside(s):
            yield from self._statement(node)
        self._declared = outer
        self._with_value = {n for n in self._with_value if n in outer} | held
        self._variables -= added

    def _declare(self, s: Any) -> None:
        if isinstance(s, st.Apply):
            for cell in defined(s.intrinsic, s.cells):
                self._declared[cell] = _Declared(st.Define, self._context.types[cell])
                self._with_value.add(cell)
            return
        name = getattr(s, "name", None)
        if name is None or not isinstance(s, DECLARED):
            return
        dtype = ex.INDEX if isinstance(s, st.Inside) else self._context.types.get(name, "pred")
        self._declared[name] = _Declared(type(s), dtype)
        if isinstance(s, st.Scan) or (isinstance(s, st.Allocate | st.Sum) and s.first is None):
            self._with_value.discard(name)
        else:
            self._with_value.add(name)
        if isinstance(s, st.Allocate) and s.copies == 2:
            self._declared[f"next_{name}"] = self._declared[name]

    # -- statements

    def _check(self, s: Any) -> None:
        match s:
            case st.Define(_, dtype, value) | st.Square(_, dtype, value):
                self._same(self._type(value), self._context.value_type(dtype), "the value")
            case st.Assign():
                self._assign(s)
            case st.Allocate(_, dtype, _, _, first):
                if first is not None:
                    self._same(self._type(first), self._context.value_type(dtype), "what it starts from")
            case st.Apply():
                self._intrinsic(s)
            case st.Swap(name):
                if self._with_value & {name, f"next_{name}"}:
                    self._with_value |= {name, f"next_{name}"}
            case st.Add(target, value, starts):
                for start in starts:
                    self._type(start.of)
                    self._declared[start.name] = _Declared(st.Inside, ex.INDEX)
                    self._with_value.add(start.name)
                self._same(self._type(target), self._type(value), "what is added")
            case st.ScanStep(_, scans):
                self._with_value |= set(scans)
            case _:
                self._others(s)

    def _others(self, s: Any) -> None:
        for child in children(s):
            if isinstance(child, ex.Test):
                self._index(child.value)
            elif isinstance(child, Expr):
                self._index(child)
            elif isinstance(child, _VALUES):
                self._type(child)

    def _assign(self, s: st.Assign) -> None:
        value = self._type(s.value)
        name = s.target.name if isinstance(s.target, ex.Ref) else s.target.array
        declared = self._find(name)
        if declared.kind in (st.Define, st.Inside) or (isinstance(s.target, ex.Element) and self._is_read_only(name)):
            raise Fault(f"{name} is not to be written")
        self._with_value.add(name)
        self._same(value, self._type(s.target), f"what is written to {name}")

    def _is_read_only(self, name: str) -> bool:
        return any(p.name == name and not p.written for p in self._part.parameters) or any(
            t.name == name for t in self._part.tables
        )

    def _intrinsic(self, s: st.Apply) -> None:
        row = TABLE[s.intrinsic]
        operand = [self._type(value) for value in s.operands][:1]
        types = self._cell_types(s, row)
        for k, name in enumerate(s.cells):
            match row.use(k):
                case Use.DEFINES:
                    continue
                case Use.WRITES:
                    held = self._find(name).dtype
                    self._with_value.add(name)
                case _:
                    held = self._read(name).dtype
            for wanted in types[k : k + 1] or operand:
                self._same(held, wanted, name)

    def _cell_types(self, s: st.Apply, row: Intrinsic) -> tuple[str, ...]:
        """Return the types of an intrinsic's cells, as its function has them."""
        match row.function:
            case Function.COMBINER:
                if s.function not in self._combiners:
                    raise Fault(f"there is no combiner {s.function}")
                return (self._context.value_type(s.function),) * len(s.cells)
            case Function.COMPARATOR:
                made = self._orders.get(s.function)
                if made is None or len(made.dtypes) != len(s.cells):
                    raise Fault(f"{s.function} does not order elements of {len(s.cells)} fields")
                return made.dtypes
        return ()

    # -- expressions

    def _find(self, name: str) -> _Declared:
        declared = self._declared.get(name)
        if declared is None:
            raise Fault(f"{name} is not declared here")
        return declared

    def _read(self, name: str) -> _Declared:
        declared = self._find(name)
        if name not in self._with_value:
            raise Fault(f"{name} is read before it has a value")
        return declared

    def _index(self, index: Expr) -> None:
        for name in variables(index):
            if name in self._variables:
                continue
            if not (self._read(name).dtype == ex.INDEX or self._find(name).dtype[:1] in "su"):
                raise Fault(f"{name} is no index")

    @staticmethod
    def _same(actual: str, wanted: str, what: str) -> None:
        if computed(actual) != computed(wanted):
            raise Fault(f"{what} is of type {actual}, not {wanted}")

    def _type(self, value: ex.Value) -> str:
        """Return the type of an expression, whose parts are looked at first."""
        match value:
            case ex.Literal(dtype):
                if dtype not in ELEMENT_TYPES:
                    raise Fault(f"there is no type {dtype}")
                return dtype
            case ex.Ref(name, dtype):
                self._same(dtype, self._read(name).dtype, name)
                return dtype
            case ex.Element(array, at, dtype):
                self._index(at)
                self._same(dtype, self._read(array).dtype, array)
                return dtype
            case ex.Field(of, k, dtype):
                fields = self._context.fields.get(self._type(of), ())
                if k >= len(fields):
                    raise Fault(f"there is no field {k}")
                self._same(dtype, fields[k], f"field {k}")
                return dtype
            case ex.Op():
                return self._operation(value)
            case ex.Combine(name, left, right):
                wanted = self._context.value_type(name)
                self._same(self._type(left), wanted, "the left operand")
                self._same(self._type(right), wanted, "the right operand")
                return wanted
            case ex.Make(name, operands):
                fields = self._context.fields.get(name, ())
                for operand, dtype in zip(operands, fields, strict=True):
                    self._same(self._type(operand), dtype, "a field")
                return name
        for operand in ex.operands_of(value):
            self._type(operand)
        if isinstance(value, ex.IndexValue | ex.Pick):
            self._index(value.at)
        return ex.type_of(value)

    def _operation(self, op: ex.Op) -> str:
        types = [self._type(o) for o in op.operands]
        match op.opcode:
            case "convert" | "bitcast-convert":
                pass
            case "compare" | "is-finite":
                for t in types[1:]:
                    self._same(t, types[0], "an operand")
                self._same("pred", op.dtype, "the result")
            case "complex":
                for t in types:
                    self._same(t, COMPLEX_PARTS[op.dtype], "a part")
            case "real" | "imag":
                self._same(op.dtype, COMPLEX_PARTS[types[0]], "the part")
            case "select":
                self._same(types[0], "pred", "the condition")
                self._same(types[1], op.dtype, "an operand")
                self._same(types[2], op.dtype, "an operand")
            case _:
                for t in types:
                    self._same(t, op.dtype, "an operand")
        return op.dtype


_VALUES = (
    ex.Literal, ex.Ref, ex.Field, ex.Element, ex.IndexValue, ex.Counter, ex.Op, ex.Combine, ex.Make, ex.Products,
    ex.Fused, ex.Pick, ex.Start,
)  # fmt: skip
