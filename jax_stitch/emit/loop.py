"""Whole loops as one part of a kernel: each thread runs them for its row, the carried values in registers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jax_stitch.analysis.binding import elements_of
from jax_stitch.analysis.patterns.nest import During, Nest, NestedLoop, Output
from jax_stitch.emit.cpp.lines import described, tables
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.loop_values import ROWS, LoopEvaluator
from jax_stitch.emit.rows import Item, Loop, body_of
from jax_stitch.graph.model import Graph
from jax_stitch.ir.indices import linearize
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Literal, Ref
from jax_stitch.kernel.threads import Space, Who
from jax_stitch.schedule.model import Part
from jax_stitch.util.values import replace


class LoopEmitter:
    """Makes the loops of one pattern; the same interface as ``PartEmitter``."""

    def __init__(self, graph: Graph, part: Part, crossing: Collection[int] = ()):
        """Take the scheduled loop; ``crossing`` are the ids of values that other phases of the kernel write."""
        assert isinstance(part.pattern.loop, Nest)
        self._part = part
        self._nest: Nest = part.pattern.loop
        self._names = Names(self._nest.graph)
        inner = self._nest.graph
        self._in = {i: self._names.fresh(f"in_{inner[i].name or i}") for i in self._nest.inputs}
        outside = zip(self._nest.inputs, part.pattern.inputs, strict=True)
        self._crossing = {i for i, o in outside if o in crossing}
        self._out = {o.node: self._names.fresh(f"out_{inner[o.node].name or o.node}") for o in self._nest.outputs}
        self._values = LoopEvaluator(part, self._nest, self._names, self._in, self._out)
        self._flags: list[st.Statement] = []

    def emit(self, name: str) -> model.Part:
        """Return the part under a name."""
        nest, split, values = self._nest, self._part.split, self._values
        items: list[Item] = []
        with values.inside(items, None):
            self._loops_in(None)
            for output in nest.outputs:
                if not isinstance(output, During):
                    self._store(output)
        body = body_of(items)
        lengths = ", then ".join(map(_length, (nested for nested in nest.loops if nested.parent is None)))
        words = f"a loop of {lengths}; {nest.rows} rows, one thread each", str(split)
        return model.Part(
            name,
            model.RowShape(split.rows, split.period, split.rows_per_block, split.lanes, False, split.sequence),
            self._part.wide,
            tuple(self._parameters()),
            tuple(r.combiner for r in values.combiners.values()),
            (),
            tables(nest.graph, values.tables),
            tuple(values.top.alike),
            (*self._declared(), *body),
            (),
            tuple(map(described, words)),
        )

    def _parameters(self) -> Iterator[model.Parameter]:
        for i, name in self._in.items():
            tensor = self._nest.graph[i].tensor
            yield model.Parameter(name, tensor.dtype, tensor.size, False, i in self._crossing)
        for i, name in self._out.items():
            tensor = self._nest.graph[i].tensor
            yield model.Parameter(name, tensor.dtype, tensor.size, True)

    def _declared(self) -> list[st.Statement]:
        """Return the registers of the carried values, and what tells for which rows a loop goes on."""
        declarations: list[st.Statement] = list(self._flags)
        for nested in self._nest.loops:
            for c in nested.carried:
                space = Space.LOCAL if self._values.alike(c.parameter) else Space.ROW
                registers = self._values.registers(c.parameter)
                declarations += [st.Allocate(place.name, place.dtype, space) for place in registers]
        return declarations

    def _loops_in(self, parent: int | None) -> None:
        """Write the loops directly inside one (or inside none), in order."""
        for nested in self._nest.loops:
            if nested.parent == parent:
                self._loop(nested)

    def _loop(self, nested: NestedLoop) -> None:
        values, rows = self._values, self._nest.rows
        for c in nested.carried:
            indices = elements_of(self._nest.bindings[c.parameter], rows)
            for place, index in zip(values.registers(c.parameter), indices, strict=True):
                first = values.element(c.initial, index).value
                values.statement(st.Assign(place, first), alike=values.alike(c.parameter))
        innermost = all(other.parent != nested.number for other in self._nest.loops)
        unroll = self._nest.unroll if nested.trips is not None and innermost else 1
        loop = Loop(st.For.times(nested.step, nested.trips, (), unroll, rows == 1))
        with values.inside(loop.body, nested.number):
            if nested.condition is not None:
                self._leave(nested.condition)
            self._loops_in(nested.number)
            for output in self._nest.outputs:
                if isinstance(output, During) and output.loop == nested.number:
                    self._store(output)
            self._carry_on(nested)
        values.next_piece(loop)

    def _leave(self, condition: int) -> None:
        """End the loop once the condition holds for no row."""
        binding = self._nest.bindings[condition]
        known = self._values.element(condition, elements_of(binding, self._nest.rows)[0])
        if known.depth & ROWS:
            flag = Ref(self._names.fresh("goes_on"), "pred")
            self._values.statement(st.Assign(flag, known.value))
            self._flags.append(st.Allocate(flag.name, "pred", Space.ROW, first=Literal("pred", 0)))
            self._values.next_piece(st.LeaveUnless(flag, any_row=True))
        else:
            self._values.next_piece(st.LeaveUnless(known.value))

    def _carry_on(self, nested: NestedLoop) -> None:
        """Assign the next iteration's carried values: all of them are known before the first is written."""
        values = self._values
        own = {place for c in nested.carried for place in values.registers(c.parameter)}
        moves: list[tuple[st.Assign, bool]] = []
        for c in nested.carried:
            alike = values.alike(c.parameter)
            indices = elements_of(self._nest.bindings[c.parameter], self._nest.rows)
            for place, index in zip(values.registers(c.parameter), indices, strict=True):
                value = values.element(c.next, index).value
                if value == place:
                    continue
                if value in own:
                    old = Ref(self._names.fresh("old"), place.dtype)
                    values.statement(st.Define(old.name, old.dtype, value), alike=alike)
                    value = old
                moves.append((st.Assign(place, value), alike))
        for move, alike in moves:
            if not alike:
                values.statement(move)
        values.next_piece()
        for move, alike in moves:
            if alike:
                values.statement(move, alike=True)

    def _store(self, output: Output) -> None:
        """Write an output's elements; what all rows have alike is written by one."""
        node = self._nest.graph[output.node]
        for index in output.indices:
            value = self._values.element(output.node, index).value
            at = self._values.index(linearize(index, node.tensor.dims))
            write = st.Assign(Element(self._out[output.node], at, node.tensor.dtype), value)
            alike = output.uniform and self._nest.rows > 1
            self._values.statement(replace(write, who=Who.FIRST_ROW) if alike else write)


def _length(nested: NestedLoop) -> str:
    return f"{nested.trips} steps" if nested.trips is not None else "as many steps as each row takes"
