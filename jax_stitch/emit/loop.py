"""A whole loop as one part of a kernel: each thread runs it for its row, the carried values in registers."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from jax_stitch.emit import scalar
from jax_stitch.emit.body import PER_ROW, UNIFORM, Evaluator, Scope, Value
from jax_stitch.emit.names import Names
from jax_stitch.emit.reducers import reducer
from jax_stitch.explore.binding import inner_sizes
from jax_stitch.explore.contraction import contracted
from jax_stitch.explore.loops import Carried, Loop, elements_of, is_literal, is_uniform, literal_of
from jax_stitch.explore.pattern import Pattern
from jax_stitch.graph.model import Graph, Node
from jax_stitch.indexing import linearize
from jax_stitch.indexing.maps import STEP, Index
from jax_stitch.schedule.model import Part, Place, Storage


class LoopEvaluator(Evaluator):
    """Evaluates elements of a loop's body; small reductions and products are written out."""

    def __init__(self, part: Part, names: Names, buffers: dict[int, str], carried: dict[int, str]):
        super().__init__(part, names, buffers, carried)
        self.combiners: dict[int, str] = {}

    def _compute(self, node: Node, index: Index) -> Value:
        ctype = scalar.computed_type(node.tensor.dtype) if node.op in (STEP, "dot", "reduce") else ""
        if node.op == STEP:
            a = node.attributes
            return self._named(node, f"{ctype}({a['start']} + step * {a['by']})", PER_ROW)
        if node.op not in ("dot", "reduce"):
            return super()._compute(node, index)
        steps = [[self.element(i, at) for i, at in step] for step in contracted(self._graph, node, index)]
        level = max((v.level for step in steps for v in step), default=UNIFORM)
        if node.op == "dot":
            terms = [f"{a.text} * {b.text}" for a, b in steps]
            return self._named(node, " + ".join(terms) or scalar.literal(np.float64(0), node.tensor.dtype), level)
        r = reducer(self._graph, node, f"Combine_{node.id}")
        self.combiners[node.id] = r.text
        initial = self.element(node.operands[1], ())
        text = initial.text
        for (value,) in steps:
            text = f"{r.name}::combine({text}, {value.text})"
        return self._named(node, scalar.rounded(node.tensor.dtype, text), max(level, initial.level))


class LoopEmitter:
    """Writes one loop; the same interface as ``PartEmitter``."""

    def __init__(self, graph: Graph, part: Part, name: str):
        assert part.pattern.loop is not None
        self._graph, self._part, self.name = graph, part, name
        self._loop: Loop = part.pattern.loop
        self.inputs, self.outputs = part.pattern.inputs, part.pattern.outputs
        self._names = Names(self._loop.body)
        self._outer = Names(graph)
        self._buffers = {i: f"in_{self._outer.of(graph[i])}" for i in self.inputs}
        self._out = {i: f"out_{self._outer.of(graph[i])}" for i in self.outputs}
        self._carried = {
            c.parameter: self._names.fresh(f"carry_{self._loop.body[c.parameter].name or c.parameter}")
            for c in self._loop.carried
        }
        self._values = LoopEvaluator(self._body_part(), self._names, self._arrays(), self._carried)

    def _body_part(self) -> Part:
        """The body as a part: everything is computed, but for the carried values and the arrays outside."""
        loop, body = self._loop, self._loop.body
        outside = {*loop.arrays, *(c.parameter for c in loop.carried)}
        bindings = {c.parameter: c.binding for c in loop.carried}
        storage = {i: Storage(i, Place.CARRIED, body[i].tensor, prod(inner_sizes(b))) for i, b in bindings.items()}
        inside = frozenset(n.id for n in body.nodes if n.id not in outside)
        pattern = Pattern(inside, loop.rows, bindings, tuple(loop.arrays), ())
        return replace(self._part, pattern=pattern, storage=storage)

    def _arrays(self) -> dict[int, str]:
        """The names of the body's arrays; small constants among them are computed like those of the body."""
        return {i: self._buffers[outer] for i, outer in self._loop.arrays.items()}

    def emit(self) -> tuple[str, str]:
        """The file-scope declarations and the function."""
        loop, split = self._loop, self._part.split
        start, repeated, end = self._start(), self._repeated(self._step()), self._end()
        index = "int64_t" if self._part.wide else "int32_t"
        length = f"{loop.trips} steps" if loop.trips is not None else "as many steps as each row takes"
        ctype = lambda i: scalar.STORAGE[self._graph[i].tensor.dtype]  # noqa: E731
        parameters = [f"const {ctype(i)}* ST_RESTRICT {self._buffers[i]}" for i in self.inputs]
        parameters += [f"{ctype(i)}* ST_RESTRICT {self._out[i]}" for i in self.outputs]
        computed = {c.parameter: scalar.computed_type(loop.body[c.parameter].tensor.dtype) for c in loop.carried}
        declared = [
            f"ST_ROW_VALUE({computed[c.parameter]}, {self._carried[c.parameter]}_{p})"
            for c in loop.carried
            for p in range(len(elements_of(c.binding, loop.rows)))
        ]
        lines = [
            f"// a loop of {length}, {loop.rows} rows, one thread each",
            f"// {split}",
            f"ST_PART {self.name}({', '.join([f'const {index} block', *parameters, 'char* const shared'])}) {{",
            f"  using index = {index};",
            f"  ST_SPLIT_ROWS({split.rows}, {split.period}, {split.rows_per_block}, {split.lanes})",
            *("  " + line for line in self._values.uniform.lines[UNIFORM]),
            f"  ST_SEQUENCE({split.sequence})",
            *("    " + line for line in [*declared, *start]),
            *("    " + line for line in repeated),
            *("    " + line for line in end),
            "  ST_END_SEQUENCE",
            "}",
        ]
        head = list(self._values.combiners.values())
        for i, table in self._values.tables.items():
            node = loop.body[i]
            assert node.literal is not None
            values = ", ".join(scalar.literal(v, node.tensor.dtype) for v in node.literal.reshape(-1))
            head.append(
                f"ST_TABLE {scalar.computed_type(node.tensor.dtype)} {table}[{node.literal.size}] = {{{values}}};"
            )
        return "\n".join(head), "\n".join(lines)

    def _repeated(self, step: list[str]) -> list[str]:
        """The steps in their loop: counted, or as long as the condition holds for a row."""
        if self._loop.goes_on is None:
            return [f"for (index step = 0; step < {self._loop.trips}; ++step) {{", *("  " + line for line in step), "}"]
        i, binding = self._loop.goes_on
        scope = self._values.stage(PER_ROW, frozenset(), frozenset())
        value = self._values.element(i, elements_of(binding, self._loop.rows)[0])
        lines = [*scope.lines[PER_ROW], f"ST_R(goes_on) = {value.text};"]
        self._values.close()
        test = ["ST_EACH_ROW_ALONE", *("  " + line for line in lines), "ST_END_ROW"]
        return [
            "ST_ROW_FLAG(goes_on)",
            *test,
            "while (ST_ANY_ROW(goes_on)) {",
            *("  " + line for line in [*step, *test]),
            "}",
        ]

    def _places(self, c: Carried) -> list[tuple[str, Index]]:
        name = self._carried[c.parameter]
        return [(f"ST_R({name}_{p})", index) for p, index in enumerate(elements_of(c.binding, self._loop.rows))]

    def _start(self) -> list[str]:
        lines: list[str] = []
        for c in self._loop.carried:
            node = self._graph[c.initial]
            for target, index in self._places(c):
                if is_literal(self._graph, c.initial):
                    value = scalar.literal(literal_of(self._graph, c.initial, index), node.tensor.dtype)
                else:
                    at = self._values.render(linearize(index, node.tensor.dims))
                    value = scalar.load(node.tensor.dtype, f"{self._buffers[c.initial]}[{at}]")
                lines.append(f"{target} = {value};")
        return ["ST_EACH_ROW_ALONE", *("  " + line for line in lines), "ST_END_ROW"]

    def _step(self) -> list[str]:
        loop, values = self._loop, self._values
        scope: Scope = values.stage(PER_ROW, frozenset(), frozenset())
        writes: list[str] = []
        for s in loop.stacked:
            for index in elements_of(s.binding, loop.rows):
                value = values.element(s.update, index)
                dtype = loop.body[s.update].tensor.dtype
                place = tuple(a + b for a, b in zip(index, s.starts, strict=True))
                at = values.render(linearize(place, self._graph[s.result].tensor.dims))
                writes.append(f"{self._out[s.result]}[{at}] = {scalar.store(dtype, value.text)};")
        for c in loop.carried:
            for target, index in self._places(c):
                writes.append(f"{target} = {values.element(c.next, index).text};")
        values.close()
        return ["ST_EACH_ROW_ALONE", *("  " + line for line in [*scope.lines[PER_ROW], *writes]), "ST_END_ROW"]

    def _end(self) -> list[str]:
        lines: list[str] = []
        for c in self._loop.carried:
            if c.result is None:
                continue
            node = self._graph[c.result]
            # What all rows have alike is written by one.
            guard = "if (row == 0) " if self._loop.rows > 1 and is_uniform(c.binding) else ""
            for source, index in self._places(c):
                at = self._values.render(linearize(index, node.tensor.dims))
                lines.append(f"{guard}{self._out[c.result]}[{at}] = {scalar.store(node.tensor.dtype, source)};")
        return ["ST_EACH_ROW_ALONE", *("  " + line for line in lines), "ST_END_ROW"] if lines else []
