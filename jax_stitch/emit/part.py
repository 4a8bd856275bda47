"""One part of a kernel as a C++ function."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, prod

from jax_stitch.analysis import linearize
from jax_stitch.analysis.locality import PARTIAL, row_index
from jax_stitch.analysis.maps import Index
from jax_stitch.emit import scalar
from jax_stitch.emit.body import PER_PLACE, PER_ROW, Evaluator, Scope, Value
from jax_stitch.emit.lines import comment, indent, source_lines, table_lines
from jax_stitch.emit.names import Names
from jax_stitch.emit.passes import pass_lines, segments_of
from jax_stitch.emit.reducers import Reducer, reducer
from jax_stitch.emit.scans import Scanned, scan_lines
from jax_stitch.emit.sorts import Sorter, declarations, sort_lines, sorter
from jax_stitch.graph.model import Graph
from jax_stitch.schedule.model import RUN, KeptReduceStage, LoopStage, Part, Place, RowStage, SortStage
from jax_stitch.schedule.runs import Segment
from jax_stitch.schedule.stages import Shape, results_of
from jax_stitch.schedule.vectors import is_in_vectors


class PartEmitter:
    """Writes one part; ``text`` is the C++ function ``name``, ``head`` what must stand before it at file scope."""

    def __init__(self, graph: Graph, part: Part, name: str, names: Names, crossing: Collection[int] = ()):
        """``crossing`` are the ids of what other phases of the kernel write."""
        self._graph = graph
        self._part = part
        self._shape = Shape(graph, part.pattern, row_index(part.split.rows, part.split.period), part.periods)
        self._names = names
        self.name = name
        self.inputs = part.pattern.inputs
        self.outputs = part.pattern.outputs
        self._crossing = crossing
        self._buffers = {i: names.of(graph[i]) for i in (*self.inputs, *self.outputs)}
        self._out = {
            i: names.fresh(f"out_{names.of(graph[i])}") if i in self.inputs else self._buffers[i] for i in self.outputs
        }
        self._reducers: dict[int, Reducer] = {}
        self._results: dict[int, str] = {}
        self._stored: dict[int, str] = {}
        self._sorters: dict[int, Sorter] = {}
        for s in part.stages:
            if isinstance(s, SortStage):
                made = self._sorters[s.sort] = sorter(graph, graph[s.sort], names)
                self._stored.update(made.results)
                continue
            reduces: tuple[int, ...] = s.partials if not isinstance(s, KeptReduceStage) else (s.reduce,)
            reduces += (*s.reduces, *s.scans) if isinstance(s, LoopStage) else ()
            for r in reduces:
                self._reducers[r] = reducer(graph, graph[r], names.fresh(f"Combine_{graph[r].name or r}"))
                if graph[r].op in (PARTIAL, "reduce-window"):
                    continue
                base = names.fresh(f"{graph[r].name or 'reduce'}_of_row")
                self._results[r] = base
                for k, i in enumerate(results_of(graph, graph[r])):
                    if i >= 0:
                        self._stored[i] = self._reducers[r].field(base, k)
            if isinstance(s, RowStage):
                for i in s.keeps:
                    self._stored[i] = names.fresh(f"{graph[i].name or graph[i].op}_of_row")
        self._values = Evaluator(part, names, self._buffers, self._stored)

    # -- the whole function

    def emit(self) -> tuple[str, str]:
        """The file-scope declarations and the function."""
        part, split = self._part, self._part.split
        stages: list[str] = []
        for s in part.stages:
            if isinstance(s, RowStage):
                stages += self._row_stage(s)
            elif isinstance(s, LoopStage):
                stages += self._loop_stage(s)
            elif isinstance(s, SortStage):
                stages += sort_lines(part, self._shape, s, self._values, self._sorters[s.sort])
            else:
                stages += self._kept_reduce(s)
        if split.sequence > 1 and any(s.place is Place.SHARED for s in part.storage.values()):
            stages.append("ST_SYNC")
        before, after = self._partials()
        declared = self._declarations()
        index = "int64_t" if part.wide else "int32_t"
        parameters = [f"const {self._ctype(i)}* {self._sharing(i)} {self._buffers[i]}" for i in self.inputs]
        parameters += [f"{self._ctype(i)}* ST_RESTRICT {self._out[i]}" for i in self.outputs]
        lines = [
            *self._comment(),
            f"ST_PART {self.name}({', '.join([f'const {index} block', *parameters, 'char* const shared'])}) {{",
            f"  using index = {index};",
            f"  {self._split()}",
            *indent(self._values.uniform.lines[0]),
            *indent(before),
            f"  ST_SEQUENCE({split.sequence})",
            *indent(declared, 2),
            *indent(stages, 2),
            "  ST_END_SEQUENCE",
            *indent(after),
            "}",
        ]
        head = [*(r.text for r in self._reducers.values()), *(s.text for s in self._sorters.values())]
        head += table_lines(self._graph, self._values.tables)
        return "\n".join(head), "\n".join(lines)

    def _split(self) -> str:
        split, met = self._part.split, self._part.exchange
        if met is not None:
            return f"ST_SPLIT_CLUSTER({split.rows}, {split.lanes}, {split.cluster}, {met.offset}, {met.size})"
        return f"ST_SPLIT_{split.order.name}({split.rows}, {split.period}, {split.rows_per_block}, {split.lanes})"

    def _comment(self) -> list[str]:
        nodes = [self._graph[i] for i in sorted(self._part.pattern.nodes)]
        ops: dict[str, int] = {}
        for n in nodes:
            ops[n.op] = ops.get(n.op, 0) + 1
        counted = ", ".join(f"{n} {op}" if n > 1 else op for op, n in ops.items())
        return [comment(counted), comment(str(self._part.split)), *source_lines(nodes)]

    def _sharing(self, i: int) -> str:
        return "ST_CROSSING" if i in self._crossing else "ST_RESTRICT"

    def _ctype(self, i: int) -> str:
        return scalar.STORAGE[self._graph[i].tensor.dtype]

    def _computed(self, i: int) -> str:
        return scalar.computed_type(self._graph[i].tensor.dtype)

    def _declarations(self) -> list[str]:
        """Kept values that each group of rows has for itself."""
        found: list[str] = []
        for s, made in self._sorters.items():
            found += declarations(self._part, self._graph, self._graph[s], made)
        seen = {name for made in self._sorters.values() for name in made.results.values()}
        for i, storage in self._part.storage.items():
            base = self._stored[i].split(".")[0]
            if base in seen:
                continue
            seen.add(base)
            r = next((r for r, b in self._results.items() if b == base), None)
            ctype = f"{self._reducers[r].name}::T" if r is not None else self._computed(i)
            if storage.place is Place.ROW:
                found.append(f"ST_ROW_VALUE({ctype}, {base})")
            else:
                found.append(f"ST_SHARED({ctype}, {base}, {storage.offset})")
        for key in self._part.kept:
            if self._graph[key[0]].op != PARTIAL:
                found.append(self._declare_own(key, self._computed(key[0]), self._ctype(key[0])))
        return found

    def _declare_own(self, key: tuple[int, Index], computed: str, in_memory: str) -> str:
        storage, name = self._part.kept[key], self._names.kept(key)
        if storage.place is Place.REGISTERS:
            return f"ST_REGISTERS({computed}, {name}, {self._per_thread(storage.size)}, {storage.size})"
        return f"ST_SHARED({in_memory}, {name}, {storage.offset})"

    def _per_thread(self, size: int) -> int:
        return ceil(size / self._part.split.lanes)

    def _rows_alone(self, scope: Scope) -> list[str]:
        return ["ST_EACH_ROW_ALONE", *indent(scope.lines[PER_ROW] + scope.lines[PER_PLACE]), "ST_END_ROW"]

    # -- stages

    def _row_stage(self, stage: RowStage) -> list[str]:
        scope = self._values.stage(PER_ROW, frozenset(), frozenset())
        for i in stage.keeps:
            value = self._values.element(i, self._shape.value_elements(i)[0], root=True)
            scope.lines[PER_ROW].append(f"ST_R({self._stored[i]}) = {value.text};")
            self._values.wrote(i)
        for i in stage.stores:
            index = self._shape.value_elements(i)[0]
            value = self._values.element(i, index)
            scope.lines[PER_ROW].append(f"ST_FIRST_LANE {self._store(i, index, value)}")
        for i in stage.partials:
            self._values_of_partial(i, scope, f"ST_A({self._accumulator(i)})", first="ST_FIRST_LANE ")
        lines = self._rows_alone(scope)
        self._values.close()
        return lines

    def _values_of_partial(self, i: int, scope: Scope, target: str, first: str = "", level: int = PER_ROW) -> None:
        r = self._reducers[i]
        index, _ = self._shape.operand_elements(self._graph[i])
        value = self._values.element(self._graph[i].operands[0], index)
        scope.lines[level].append(f"{first}{target} = {r.name}::combine({target}, {value.text});")

    def _accumulator(self, i: int) -> str:
        return f"sum_{self._reducers[i].name}"

    def _store(self, i: int, index: Index, value: Value, scope: Scope | None = None) -> str:
        node = self._graph[i]
        at = self._values.render(linearize(index, node.tensor.dims))
        element, stored = f"{self._out[i]}[{at}]", scalar.store(node.tensor.dtype, value.text)
        if scope is not None and scope.vector > 1 and is_in_vectors(index, node.tensor.dims, scope.vector):
            name, v = self._names.fresh(f"{node.name or node.op}_vector"), scope.vector
            scope.loads.append(f"ST_VECTOR({self._ctype(i)}, {name}, {v})")
            scope.writes.append(f"ST_STORE_VECTOR({self._ctype(i)}, {name}, {self._out[i]}, {at}, {v})")
            element = f"ST_OF_VECTOR({name}, {element})"
        return f"{element} = {stored};"

    def _loop_stage(self, stage: LoopStage) -> list[str]:
        graph = self._graph
        before: list[str] = []
        for i in stage.reduces:
            r = self._reducers[i]
            before.append(f"ST_ACC({r.name}::T, {self._accumulator(i)}, {self._start(i)})")
        in_runs = [i for i in stage.reduces if not stage.scans and self._in_runs(i, stage.size)]
        levels = self._levels(stage.size) if in_runs else 0
        for i in in_runs:
            r = self._reducers[i]
            before += [f"ST_ACC({r.name}::T, {self._of_runs(i, k)}, {r.identity})" for k in range(levels)]
        if in_runs:
            before.append("int turns_ = 0;")
        keys = [*stage.keeps, *stage.uses]
        keys += [(i, self._shape.operand_elements(graph[i])[0]) for i in stage.partials]
        unrolled = any(self._part.kept[k].place is Place.REGISTERS for k in keys)
        joins = [[line for i in in_runs for line in self._join_run(i, k, levels)] for k in range(levels)]
        if stage.scans:
            roots = partial(self._roots, stage, in_runs)
            lines = [
                *before,
                *scan_lines(self._shape, stage, self._part.split, self._values, self._scans(stage), roots),
            ]
        else:
            scopes = [self._segment(stage, in_runs, s) for s in segments_of(self._part, stage)]
            lines = [*before, *pass_lines(self._part, stage.size, scopes, stage.cuts, unrolled, joins)]
        self._values.close()
        for i in in_runs:
            totals = [self._of_runs(i, k) for k in range(levels)] + [self._accumulator(i)]
            lines += [f"ST_JOIN({self._reducers[i].name}, {b}, {a})" for a, b in pairwise(totals)]
        for i in stage.reduces:
            reduce = "ST_REDUCE" if self._part.exchange is None else "ST_REDUCE_CLUSTER"
            lines.append(f"{reduce}({self._reducers[i].name}, {self._results[i]}, {self._accumulator(i)})")
            initial = self._initial(i)
            if initial:
                target = f"ST_R({self._results[i]})"
                text = f"{target} = {self._reducers[i].name}::combine({target}, {initial});"
                lines += ["ST_EACH_ROW_ALONE", f"  {text}", "ST_END_ROW"]
            self._values.wrote(*results_of(graph, graph[i]))
        return ["{", *indent(lines), "}"] if stage.reduces or stage.scans else lines

    def _segment(self, stage: LoopStage, in_runs: Sequence[int], segment: Segment | None) -> Scope:
        vector = self._part.vectors.get(stage.size, 1)
        scope = self._values.stage(PER_PLACE, frozenset(stage.uses), frozenset(stage.keeps), vector, segment)
        self._roots(stage, in_runs, scope)
        return scope

    def _scans(self, stage: LoopStage) -> dict[int, Scanned]:
        """The combiner, the name and the first value of each scan of a stage."""
        found: dict[int, Scanned] = {}
        for i in stage.scans:
            name = self._names.fresh(f"{self._graph[i].name or 'scan'}_so_far")
            first = self._values.element(self._graph[i].operands[1], ()).text
            found[i] = Scanned(self._reducers[i].name, name, first)
        return found

    def _roots(self, stage: LoopStage, in_runs: Sequence[int], scope: Scope) -> None:
        """Adds to ``scope`` what a stage keeps, reduces and stores at each place."""
        graph = self._graph
        for i, index in stage.keeps:
            self._values.element(i, index)
        for i in stage.reduces:
            r = self._reducers[i]
            index, _ = self._shape.operand_elements(graph[i])
            values = [self._values.element(o, index).text for o in graph[i].operands[: r.fields]]
            target = f"ST_A({self._of_runs(i, 0) if i in in_runs else self._accumulator(i)})"
            scope.lines[PER_PLACE].append(f"{target} = {r.name}::combine({target}, {r.value(values)});")
        for i in stage.partials:
            index, _ = self._shape.operand_elements(graph[i])
            storage = self._part.kept[(i, index)]
            name = self._names.kept((i, index))
            target = f"ST_K({name})" if storage.place is Place.REGISTERS else f"{name}[p_]"
            self._values_of_partial(i, scope, target, level=PER_PLACE)
        for i in stage.stores:
            index = self._shape.value_elements(i)[0]
            value = self._values.element(i, index)
            scope.lines[PER_PLACE].append(self._store(i, index, value, scope))

    def _in_runs(self, i: int, size: int) -> bool:
        """Whether a lane takes so many elements that each run of them is reduced by itself first, for accuracy."""
        r = self._reducers[i]
        floating = r.fields == 1 and r.dtypes[0] in ("f32", "f64", *scalar.HALF)
        return floating and r.identity is not None and self._levels(size) > 0

    def _levels(self, size: int) -> int:
        """How many accumulators come before that of the whole: of runs, of runs of runs, until none takes many."""
        run, levels, left = self._part.run, 0, self._per_thread(size)
        while left > 2 * run:
            levels, left = levels + 1, ceil(left / run)
        return levels

    def _of_runs(self, i: int, level: int) -> str:
        return f"{self._accumulator(i)}_of_run{level or ''}"

    def _join_run(self, i: int, level: int, levels: int) -> list[str]:
        r, run = self._reducers[i], f"ST_A({self._of_runs(i, level)})"
        total = f"ST_A({self._of_runs(i, level + 1) if level + 1 < levels else self._accumulator(i)})"
        return [f"{total} = {r.name}::combine({total}, {run});", f"{run} = {r.identity};"]

    def _start(self, i: int) -> str:
        """What the accumulators of a reduction start from."""
        r = self._reducers[i]
        if r.identity is not None:
            return r.identity
        operands = self._graph[i].operands[r.fields :]
        return f"({r.value([self._values.element(o, ()).text for o in operands])})"

    def _initial(self, i: int) -> str | None:
        """The reduction's own initial value where that is not the neutral one."""
        r = self._reducers[i]
        if r.identity is None:
            return None
        text = self._values.element(self._graph[i].operands[1], ()).text
        return None if text == r.identity else text

    def _kept_reduce(self, stage: KeptReduceStage) -> list[str]:
        graph, r = self._graph, self._reducers[stage.reduce]
        reduce = graph[stage.reduce]
        name = self._results[stage.reduce]
        initial = self._start(stage.reduce) if r.identity is None else (self._initial(stage.reduce) or r.identity)
        total = prod(stage.reduced)
        index = self._shape.kept_elements(stage)
        in_runs = stage.in_runs and r.identity is not None and r.fields == 1
        target = f"{name}_of_run" if in_runs else name
        scope = self._values.stage(PER_PLACE, frozenset(), frozenset())
        values = [self._values.element(o, index).text for o in reduce.operands[: r.fields]]
        scope.lines[PER_PLACE].append(f"{target}[p_] = {r.name}::combine({target}[p_], {r.value(values)});")
        body = pass_lines(self._part, stage.kept, [scope])
        self._values.close()
        lines = self._each_kept(stage, f"{name}[p_] = {initial};")
        if in_runs:
            storage = self._part.storage[stage.reduce]
            offset = storage.offset + (self._part.split.rows_per_block * stage.kept * 8 + 63) // 64 * 64
            lines += [
                f"ST_SHARED({r.name}::T, {target}, {offset})",
                f"for (index q0 = 0; q0 < {total}; q0 += {RUN}) {{",
                *indent(self._each_kept(stage, f"{target}[p_] = {r.identity};")),
                f"  for (index q = q0; q < q0 + {RUN} && q < {total}; ++q) {{",
                *indent(body, 2),
                "  }",
                *indent(self._each_kept(stage, f"{name}[p_] = {r.name}::combine({name}[p_], {target}[p_]);")),
                "}",
            ]
        else:
            lines += [f"for (index q = 0; q < {total}; ++q) {{", *indent(body), "}"]
        return ["{", *indent([*lines, "ST_SYNC"]), "}"]

    def _each_kept(self, stage: KeptReduceStage, line: str) -> list[str]:
        return pass_lines(self._part, stage.kept, [Scope({PER_ROW: [], PER_PLACE: [line]})])

    def _partials(self) -> tuple[list[str], list[str]]:
        """Partial results of a block: started before its rows, written after them."""
        before: list[str] = []
        after: list[str] = []
        for s in self._part.stages:
            if isinstance(s, RowStage):
                for i in s.partials:
                    r = self._reducers[i]
                    assert r.identity is not None
                    total = f"total_{r.name}"
                    before.append(f"ST_ACC({r.name}::T, {self._accumulator(i)}, {r.identity})")
                    after.append(f"ST_REDUCE_BLOCK({r.name}, {total}, {self._accumulator(i)})")
                    after.append(f"ST_ONCE {self._out[i]}[block] = {scalar.store(self._graph[i].tensor.dtype, total)};")
            elif isinstance(s, LoopStage):
                for i in s.partials:
                    before += self._begin_partial(i, s.size)
                    after += self._end_partial(i, s.size)
        return before, after

    def _begin_partial(self, i: int, size: int) -> list[str]:
        r = self._reducers[i]
        assert r.identity is not None
        key = (i, self._shape.operand_elements(self._graph[i])[0])
        declare = self._declare_own(key, f"{r.name}::T", f"{r.name}::T")
        name = self._names.kept(key)
        if self._part.kept[key].place is Place.REGISTERS:
            return [declare, f"ST_FILL_REGISTERS({name}, {self._per_thread(size)}, {size}, {r.identity})"]
        return [declare, f"ST_FILL_OWN_SHARED({name}, {size}, {r.identity})"]

    def _end_partial(self, i: int, size: int) -> list[str]:
        node = self._graph[i]
        index, _ = self._shape.operand_elements(node)
        storage = self._part.kept[(i, index)]
        name = self._names.kept((i, index))
        value = f"ST_K({name})" if storage.place is Place.REGISTERS else f"{name}[p_]"
        unrolled = "_UNROLLED" if storage.place is Place.REGISTERS else ""
        line = f"    {self._out[i]}[block * index({size}) + j] = {scalar.store(node.tensor.dtype, value)};"
        vector = self._part.vectors.get(size, 1)
        begin, end = [f"  ST_EACH_PLACE{unrolled}(j, {size})"], ["  ST_END_PLACE"]
        if vector > 1:
            begin = [f"  ST_EACH_VECTOR{unrolled}(j, {size}, {vector})", f"  ST_EACH_OF_VECTOR(j, {size}, {vector})"]
            end = ["  ST_END_OF_VECTOR", "  ST_END_VECTOR"]
        joined = []
        if self._part.split.rows_per_block > 1:
            joined = [f"ST_JOIN_ROWS({self._reducers[i].name}, {name}, {self._per_thread(size)}, {size})"]
        return [*joined, "ST_ONE_ROW", *begin, line, *end, "ST_END_ROW"]
