"""Whole loops as one part of a kernel: each thread runs them for its row, the carried values in registers."""

from __future__ import annotations

from collections.abc import Collection

from jax_stitch.analysis import linearize
from jax_stitch.emit import scalar
from jax_stitch.emit.lines import comment, table_lines
from jax_stitch.emit.loop_values import ROWS, LoopEvaluator
from jax_stitch.emit.names import Names
from jax_stitch.emit.rows import Item, Repeat, text_of
from jax_stitch.graph.model import Graph
from jax_stitch.ir.nest import During, Level, Nest, Output
from jax_stitch.loops.nest_walk import elements_of
from jax_stitch.schedule.model import Part


class LoopEmitter:
    """Writes the loops of one pattern; the same interface as ``PartEmitter``."""

    def __init__(self, graph: Graph, part: Part, name: str, crossing: Collection[int] = ()):
        """``crossing`` are the ids of what other phases of the kernel write."""
        assert part.pattern.loop is not None
        self._part, self.name = part, name
        self._nest: Nest = part.pattern.loop
        self.inputs, self.outputs = part.pattern.inputs, part.pattern.outputs
        self._names = Names(self._nest.graph)
        inner = self._nest.graph
        self._in = {i: self._names.fresh(f"in_{inner[i].name or i}") for i in self._nest.inputs}
        outside = zip(self._nest.inputs, self.inputs, strict=True)
        self._access = {i: "ST_CROSSING" if o in crossing else "ST_RESTRICT" for i, o in outside}
        self._out = {o.node: self._names.fresh(f"out_{inner[o.node].name or o.node}") for o in self._nest.outputs}
        self._values = LoopEvaluator(part, self._nest, self._names, self._in, self._out)
        self._flags: list[str] = []

    def emit(self) -> tuple[str, str]:
        """The file-scope declarations and the function."""
        nest, split, values = self._nest, self._part.split, self._values
        items: list[Item] = []
        with values.depth(items, None):
            self._run(None)
            for output in nest.outputs:
                if not isinstance(output, During):
                    self._store(output)
        index = "int64_t" if self._part.wide else "int32_t"
        parameters = [f"const {self._storage(i)}* {self._access[i]} {name}" for i, name in self._in.items()]
        parameters += [f"{self._storage(i)}* ST_RESTRICT {name}" for i, name in self._out.items()]
        described = ", then ".join(map(_length, (level for level in nest.loops if level.parent is None)))
        lines = [
            comment(f"a loop of {described}; {nest.rows} rows, one thread each"),
            comment(str(split)),
            f"ST_PART {self.name}({', '.join([f'const {index} block', *parameters, 'char* const shared'])}) {{",
            f"  using index = {index};",
            f"  ST_SPLIT_ROWS({split.rows}, {split.period}, {split.rows_per_block}, {split.lanes})",
            *("  " + line for line in values.top.alike),
            f"  ST_SEQUENCE({split.sequence})",
            *("    " + line for line in [*self._declared(), *text_of(items)]),
            "  ST_END_SEQUENCE",
            "}",
        ]
        head = [*(r.text for r in values.combiners.values()), *table_lines(nest.graph, values.tables)]
        return "\n".join(head), "\n".join(lines)

    def _storage(self, i: int) -> str:
        return scalar.STORAGE[self._nest.graph[i].tensor.dtype]

    def _declared(self) -> list[str]:
        """The registers of the carried values, and what tells for which rows a loop goes on."""
        lines = list(self._flags)
        for level in self._nest.loops:
            for c in level.carried:
                ctype = scalar.computed_type(self._nest.graph[c.parameter].tensor.dtype)
                for place in self._values.registers(c.parameter):
                    alike = self._values.alike(c.parameter)
                    lines.append(f"{ctype} {place};" if alike else f"ST_ROW_VALUE({ctype}, {place[5:-1]})")
        return lines

    def _run(self, parent: int | None) -> None:
        """The loops directly inside one (or inside none), in order."""
        for level in self._nest.loops:
            if level.parent == parent:
                self._loop(level)

    def _loop(self, level: Level) -> None:
        values, rows = self._values, self._nest.rows
        for c in level.carried:
            indices = elements_of(self._nest.bindings[c.parameter], rows)
            for place, index in zip(values.registers(c.parameter), indices, strict=True):
                line = f"{place} = {values.element(c.initial, index).text};"
                values.statement(line, alike=values.alike(c.parameter))
        step = level.step
        head = f"for (index {step} = 0; {step} < {level.trips}; ++{step})" if level.trips is not None else "for (;;)"
        innermost = all(other.parent != level.number for other in self._nest.loops)
        unroll = self._nest.unroll if level.trips is not None and innermost else 1
        repeat = Repeat(head, f"ST_UNROLL_{'ALONE' if rows == 1 else 'ROWS'}({unroll})" if unroll > 1 else "")
        with values.depth(repeat.body, level.number):
            if level.condition is not None:
                self._leave(level.condition)
            self._run(level.number)
            for output in self._nest.outputs:
                if isinstance(output, During) and output.loop == level.number:
                    self._store(output)
            self._carry_on(level)
        values.next_piece(repeat)

    def _leave(self, condition: int) -> None:
        """Ends the loop once the condition holds for no row."""
        binding = self._nest.bindings[condition]
        value = self._values.element(condition, elements_of(binding, self._nest.rows)[0])
        if value.level & ROWS:
            flag = self._names.fresh("goes_on")
            self._values.statement(f"ST_R({flag}) = {value.text};")
            self._flags.append(f"ST_ROW_FLAG({flag})")
            self._values.next_piece(f"if (!ST_ANY_ROW({flag})) break;")
        else:
            self._values.next_piece(f"if (!{value.text}) break;")

    def _carry_on(self, level: Level) -> None:
        """What the next iteration starts with: all of it is known before the first of it is written."""
        values = self._values
        own = {place for c in level.carried for place in values.registers(c.parameter)}
        moves: list[tuple[str, str, bool]] = []
        for c in level.carried:
            alike = values.alike(c.parameter)
            ctype = scalar.computed_type(self._nest.graph[c.parameter].tensor.dtype)
            indices = elements_of(self._nest.bindings[c.parameter], self._nest.rows)
            for place, index in zip(values.registers(c.parameter), indices, strict=True):
                text = values.element(c.next, index).text
                if text == place:
                    continue
                if text in own:
                    kept = self._names.fresh("old")
                    values.statement(f"const {ctype} {kept} = {text};", alike=alike)
                    text = kept
                moves.append((place, text, alike))
        for place, text, alike in moves:
            if alike:
                continue
            values.statement(f"{place} = {text};")
        values.next_piece()
        for place, text, alike in moves:
            if alike:
                values.statement(f"{place} = {text};", alike=True)

    def _store(self, output: Output) -> None:
        """Writes an output's elements; what all rows have alike is written by one."""
        node = self._nest.graph[output.node]
        guard = "if (row == 0) " if output.uniform and self._nest.rows > 1 else ""
        for index in output.indices:
            value = self._values.element(output.node, index)
            at = self._values.render(linearize(index, node.tensor.dims))
            stored = scalar.store(node.tensor.dtype, value.text)
            self._values.statement(f"{guard}{self._out[output.node]}[{at}] = {stored};")


def _length(level: Level) -> str:
    return f"{level.trips} steps" if level.trips is not None else "as many steps as each row takes"
