"""The kernel language's statements as C++ against ``backend/runtime/``, whose macros are the heads of loops over rows
and places."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.emit.cpp import passes as cpp_passes
from jax_stitch.emit.cpp import scalar
from jax_stitch.emit.cpp import team as cpp_team
from jax_stitch.emit.cpp.lines import block
from jax_stitch.emit.cpp.values import WHO, Kind, Named, Values, ctype
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.intrinsics import defined, text_of
from jax_stitch.kernel.model import Part, RowShape, TeamShape
from jax_stitch.kernel.threads import Reach, Space

_KINDS = {
    Space.LOCAL: Kind.LOCAL,
    Space.LANE: Kind.ACCUMULATOR,
    Space.ROW: Kind.ROW,
    Space.REGISTERS: Kind.REGISTERS,
    Space.SHARED: Kind.SHARED,
    Space.TEAM: Kind.ARRAY,
}
_BARRIERS = {Reach.BLOCK: "ST_SYNC", Reach.GRID: "ST_GRID_SYNC"}


class Statements:
    """Write the statements of one part, in their order; what they declare is known from then on."""

    def __init__(self, part: Part):
        shape = part.shape
        self.is_one_thread = isinstance(shape, TeamShape) and shape.threads == 1
        self.lanes_fastest = isinstance(shape, RowShape) and shape.lanes_fastest
        self.row_vector = shape.row_vector if isinstance(shape, RowShape) else 1
        self.values = Values(part.combiners, self.lanes_fastest, self.row_vector)
        for p in part.parameters:
            self.declare(p.name, Kind.ARRAY, p.dtype, in_memory=True)
        for t in part.tables:
            self.declare(t.name, Kind.ARRAY, t.dtype)

    def declare(self, name: str, kind: Kind, dtype: str, size: int = 0, in_memory: bool = False) -> None:
        self.values.names[name] = Named(kind, dtype, size, in_memory)

    def lines(self, body: Sequence[st.Statement]) -> list[str]:
        """Return the text of statements, in order."""
        lines: list[str] = []
        for s in body:
            lines += self._lines(s)
        return lines

    def _lines(self, s: st.Statement) -> list[str]:
        match s:
            case st.Define(name, dtype, value):
                text = f"const {ctype(dtype)} {name} = {self.values.text(value)};"
                self.declare(name, Kind.LOCAL, dtype)
                return [text]
            case st.Assign(target, value, who):
                return [f"{WHO[who]}{self.values.written(target, value)}"]
            case st.Rows(body, low, high):
                inner = cpp_passes.of_own_rows(self, body, self.lines(body))
                return block("ST_EACH_ROW_ALONE" if high is None else f"ST_EACH_ROW_FROM({low}, {high})", inner)
            case st.Pass():
                return cpp_passes.pass_lines(self, s)
            case st.ScanPass():
                return cpp_passes.scan_lines(self, s)
            case st.Choice():
                return self._choice(s)
            case st.Scope(body):
                return block("", self.lines(body))
            case st.Barrier(reach):
                return [_BARRIERS[reach]]
            case st.For() | st.LeaveUnless():
                return self._loop(s)
            case st.Apply(intrinsic, cells, function, _, operands):
                for name in defined(intrinsic, cells):
                    self.declare(name, Kind.LOCAL, function)
                return [text_of(s, [self.values.text(value) for value in operands])]
            case st.Swap() | st.Add() | st.Items() | st.Sums():
                return cpp_team.team_lines(self, s)
            case st.Allocate():
                return self._declaration(s)

    def _declaration(self, s: st.Allocate) -> list[str]:
        name, dtype = s.name, s.dtype
        self.declare(name, _KINDS[s.space], dtype, s.size, s.in_memory)
        match s.space:
            case Space.LOCAL:
                return [f"{ctype(dtype)} {name};"]
            case Space.LANE:
                assert s.first is not None
                return [f"ST_ACC({ctype(dtype)}, {name}, {self.first(dtype, s.first)})"]
            case Space.ROW if s.first is not None:
                return [f"ST_ROW_FLAG({name})"]
            case Space.ROW:
                return [f"ST_ROW_TRUTH({name})" if dtype == "pred" else f"ST_ROW_VALUE({ctype(dtype)}, {name})"]
            case Space.REGISTERS:
                return [f"ST_REGISTERS({ctype(dtype)}, {name}, {s.each}, {s.size})"]
            case Space.SHARED:
                element_type = scalar.STORAGE[dtype] if s.in_memory else ctype(dtype)
                return [f"ST_SHARED({element_type}, {name}, {s.offset})"]
        return cpp_team.array_lines(self, s)

    def first(self, dtype: str, value: ex.Value) -> str:
        """Return the initial value of an accumulator: the neutral value of its combiner, or a value of its own."""
        combiner = self.values.combiners.get(dtype)
        text = self.values.text(value)
        return text if combiner is None or combiner.identity is not None else f"({text})"

    def _choice(self, s: st.Choice) -> list[str]:
        lines: list[str] = []
        for k, case in enumerate(s.cases):
            words = ["else"] * (k > 0) + [f"if ({self.values.tests(case.tests)})"] * bool(case.tests)
            lines += block(" ".join(words), self.lines(case.body))
        return lines

    def _loop(self, s: st.For | st.LeaveUnless) -> list[str]:
        if isinstance(s, st.LeaveUnless):
            if s.any_row:
                assert isinstance(s.condition, ex.Ref)
                return [f"if (!ST_ANY_ROW({s.condition.name})) break;"]
            return [f"if (!{self.values.text(s.condition)}) break;"]
        q = s.variable
        below = " && ".join(f"{q} < {self.values.index(stop)}" for stop in s.stops)
        step = f"{q} += {s.by}" if s.by > 1 else f"++{q}"
        head = f"for (index {q} = {self.values.index(s.start)}; {below}; {step})" if s.stops else "for (;;)"
        before = [f"ST_UNROLL_{'ALONE' if s.one_row else 'ROWS'}({s.unroll})"] if s.unroll > 1 else []
        return [*before, *block(head, self.lines(s.body))]
