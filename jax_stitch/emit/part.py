"""One part of a kernel, straight code, in the kernel language."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.maps import Index
from jax_stitch.emit import partials
from jax_stitch.emit.blocked_sums import BlockedSums
from jax_stitch.emit.body import PER_PLACE, PER_ROW, UNIFORM, Evaluator, Known, Scope
from jax_stitch.emit.cpp.lines import described, source_lines, tables
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.inner_reductions import inner_reduction
from jax_stitch.emit.passes import make_pass, place_axes, stretches_of
from jax_stitch.emit.reducers import Reducer, reducer
from jax_stitch.emit.scans import scan_pass
from jax_stitch.emit.sorts import Sorter, declarations, sort_statements, sorter
from jax_stitch.graph.model import Graph
from jax_stitch.ir.indices import linearize
from jax_stitch.ir.indices.variables import row_index
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Field, Ref, Value
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.threads import Space, Who
from jax_stitch.schedule.fetched import fetched
from jax_stitch.schedule.model import InnerReducePass, LoopPass, OncePass, Order, Part, RowPass, SortPass, StorageKind
from jax_stitch.schedule.row_passes import PatternView, results_of
from jax_stitch.schedule.runs import Stretch
from jax_stitch.util.values import replace


class PartEmitter:
    """Makes one part; its combiners, sorts and names are known from the start."""

    def __init__(self, graph: Graph, part: Part, names: Names, crossing: Collection[int] = ()):
        """Take the scheduled part; ``crossing`` are the ids of values that other phases of the kernel write."""
        self.graph = graph
        self.part = part
        self.shape = PatternView(graph, part.pattern, row_index(part.split.rows, part.split.period), part.periods)
        self.names = names
        self._crossing = crossing
        pattern = part.pattern
        self._buffers = {i: names.of(graph[i]) for i in (*pattern.inputs, *pattern.outputs)}
        self.out = {
            i: names.fresh(f"out_{names.of(graph[i])}") if i in pattern.inputs else self._buffers[i]
            for i in pattern.outputs
        }
        self.reducers: dict[int, Reducer] = {}
        self.results: dict[int, str] = {}
        self._cells: dict[int, Ref | Field] = {}
        self._sorters: dict[int, Sorter] = {}
        for s in part.passes:
            self._name(s)
        for i in fetched(part):
            self._cells[i] = Ref(names.fresh(f"{graph[i].name or graph[i].op}_of_row"), graph[i].tensor.dtype)
        self.values = Evaluator(part, names, self._buffers, self._cells)

    def _name(self, row_pass: RowPass) -> None:
        """Name the combiners and the results of a pass."""
        graph, names = self.graph, self.names
        if isinstance(row_pass, SortPass):
            made = self._sorters[row_pass.sort] = sorter(graph, graph[row_pass.sort], names)
            self._cells.update(made.results)
            return
        reduces = row_pass.partials if isinstance(row_pass, OncePass | LoopPass) else ()
        reduces += row_pass.reduces if isinstance(row_pass, InnerReducePass | LoopPass) else ()
        reduces += row_pass.scans if isinstance(row_pass, LoopPass) else ()
        for r in reduces:
            made_of = self.reducers[r] = reducer(graph, graph[r], names.fresh(f"Combine_{graph[r].name or r}"))
            if graph[r].op in (PARTIAL, "reduce-window"):
                continue
            base = self.results[r] = names.fresh(f"{graph[r].name or 'reduce'}_of_row")
            for k, i in enumerate(results_of(graph, graph[r])):
                if i >= 0:
                    self._cells[i] = made_of.field(made_of.cell(base), k)
        if isinstance(row_pass, OncePass | LoopPass):
            for i in row_pass.caches if isinstance(row_pass, OncePass) else row_pass.keeps:
                name = names.fresh(f"{graph[i].name or graph[i].op}_of_row")
                self._cells[i] = Ref(name, computed(graph[i].tensor.dtype))

    # -- the whole part

    def emit(self, name: str) -> model.Part:
        """Return the part under a name."""
        part, split = self.part, self.part.split
        statements: list[st.Statement] = []
        for s in part.passes:
            if isinstance(s, OncePass):
                statements += self._once_pass(s)
            elif isinstance(s, LoopPass):
                statements += self._loop_pass(s)
            elif isinstance(s, SortPass):
                statements += sort_statements(part, self.shape, s, self.values, self._sorters[s.sort])
            else:
                statements.append(inner_reduction(self, s))
        copied = fetched(part)
        if split.sequence > 1 and any(s.kind is StorageKind.SHARED for i, s in part.storage.items() if i not in copied):
            statements.append(st.Barrier())
        statements = [*self._fetches(copied), *statements]
        before, after = partials.around(self)
        declared = self._declarations()
        return model.Part(
            name,
            _shape(part),
            part.wide,
            self._parameters(),
            tuple(r.combiner for r in self.reducers.values()),
            tuple(s.order for s in self._sorters.values()),
            tables(self.graph, self.values.tables),
            (*self.values.uniform.lines[UNIFORM], *before),
            (*declared, *statements),
            tuple(after),
            self._comments(),
        )

    def _parameters(self) -> tuple[model.Parameter, ...]:
        pattern = self.part.pattern
        inputs = [self._parameter(i, self._buffers[i], False) for i in pattern.inputs]
        return (*inputs, *(self._parameter(i, self.out[i], True) for i in pattern.outputs))

    def _parameter(self, i: int, name: str, written: bool) -> model.Parameter:
        tensor = self.graph[i].tensor
        return model.Parameter(name, tensor.dtype, tensor.size, written, not written and i in self._crossing)

    def _comments(self) -> tuple[str, ...]:
        nodes = [self.graph[i] for i in sorted(self.part.pattern.nodes)]
        ops: dict[str, int] = {}
        for n in nodes:
            ops[n.op] = ops.get(n.op, 0) + 1
        counted = ", ".join(f"{n} {op}" if n > 1 else op for op, n in ops.items())
        return (described(counted), described(str(self.part.split)), *source_lines(nodes))

    def _declarations(self) -> list[st.Statement]:
        """Return the declarations of cached values that each group of rows has for itself."""
        statements: list[st.Statement] = []
        for s, made in self._sorters.items():
            statements += declarations(self.part, self.graph, self.graph[s], made)
        seen = {ref.name for made in self._sorters.values() for ref in made.results.values()}
        reduced = {name: self.reducers[r].name for r, name in self.results.items()}
        for i, storage in self.part.storage.items():
            where = self._cells[i]
            cell = where.of if isinstance(where, Field) else where
            assert isinstance(cell, Ref)
            if cell.name in seen:
                continue
            seen.add(cell.name)
            dtype = reduced.get(cell.name, cell.dtype)
            if storage.kind is StorageKind.ROW:
                statements.append(st.Allocate.of_row(cell.name, dtype))
            else:
                as_in_buffers = i in self.part.pattern.inputs
                statements.append(st.Allocate.shared(cell.name, dtype, storage.size, storage.offset, as_in_buffers))
        for key in self.part.own_storage:
            if self.graph[key[0]].op != PARTIAL:
                statements.append(self.declare_own(key, self.graph[key[0]].tensor.dtype, in_memory=True))
        return statements

    def declare_own(self, key: tuple[int, Index], dtype: str, in_memory: bool = False) -> st.Allocate:
        """Return the declaration of what a thread caches at its own places."""
        storage, name = self.part.own_storage[key], self.names.own(key)
        if storage.kind is StorageKind.REGISTERS:
            return st.Allocate(name, dtype, Space.REGISTERS, storage.size, each=self.part.per_lane(storage.size))
        return st.Allocate.shared(name, dtype, storage.size, storage.offset, in_memory)

    def _fetches(self, copied: Sequence[int]) -> list[st.Statement]:
        """Return the copies of rows of inputs to shared memory, those of one length together."""
        by_size: dict[int, list[st.Statement]] = {}
        for i in copied:
            index, size = self.shape.value_elements(i)
            dtype, at, where = self.graph[i].tensor.dtype, linearize(index, self.graph[i].tensor.dims), self._cells[i]
            assert isinstance(where, Ref)
            by_size.setdefault(size, []).append(st.Assign(where, Element(self._buffers[i], at, dtype)))
        return [
            st.Pass(*place_axes(size), (), (st.Stretch(0, size, tuple(body)),), fetches=True)
            for size, body in by_size.items()
        ]

    # -- passes

    def _once_pass(self, row_pass: OncePass) -> list[st.Statement]:
        scope = self.values.open(PER_ROW, frozenset(), frozenset())
        for i in row_pass.caches:
            value = self.values.element(i, self.shape.value_elements(i)[0], root=True)
            cell = self._cells[i]
            assert isinstance(cell, Ref)
            scope.lines[PER_ROW].append(st.Assign(cell, value.value))
            self.values.wrote(i)
        for i in row_pass.writes:
            index = self.shape.value_elements(i)[0]
            value = self.values.element(i, index)
            scope.lines[PER_ROW].append(replace(self._write(i, index, value), who=Who.FIRST_LANE))
        for i in row_pass.partials:
            added = self._added(i, Ref(self.accumulator(i), self.reducers[i].dtype))
            scope.lines[PER_ROW].append(replace(added, who=Who.FIRST_LANE))
        self.values.close()
        return [st.Rows((*scope.lines[PER_ROW], *scope.lines[PER_PLACE]))]

    def _added(self, i: int, target: Ref) -> st.Assign:
        """Return the assignment that adds a row, or a place, to a partial result."""
        index, _ = self.shape.operand_elements(self.graph[i])
        value = self.values.element(self.graph[i].operands[0], index)
        return st.Assign(target, self.reducers[i].combined(target, value.value))

    def accumulator(self, i: int) -> str:
        return f"sum_{self.reducers[i].name}"

    def _write(self, i: int, index: Index, value: Known, scope: Scope | None = None) -> st.Assign:
        node = self.graph[i]
        at = self.values.index(linearize(index, node.tensor.dims))
        vector = self.values.vector_name(node, index, 1 if scope is None else scope.vector)
        return st.Assign(Element(self.out[i], at, node.tensor.dtype, vector), value.value)

    def _loop_pass(self, row_pass: LoopPass) -> list[st.Statement]:
        before = [
            st.Allocate.accumulator(self.accumulator(i), self.reducers[i].name, self.start(i)) for i in row_pass.reduces
        ]  # fmt: skip
        blocked = BlockedSums(self.part, row_pass, {i: self.reducers[i] for i in row_pass.reduces}, self.accumulator)
        keys = [*row_pass.caches, *row_pass.uses]
        keys += [(i, self.shape.operand_elements(self.graph[i])[0]) for i in row_pass.partials]
        unrolled = any(self.part.own_storage[k].kind is StorageKind.REGISTERS for k in keys)
        lines: list[st.Statement] = [*before, *blocked.declarations()]
        if row_pass.scans:
            roots = partial(self._roots, row_pass, blocked)
            lines.append(scan_pass(self.shape, row_pass, self.values, self._scans(row_pass), roots))
        else:
            scopes = [self._stretch(row_pass, blocked, s) for s in stretches_of(self.part, row_pass)]
            lines.append(make_pass(self.part, row_pass.size, scopes, row_pass.breaks, unrolled, blocked.joins()))
        self.values.close()
        if row_pass.keeps:
            lines.append(st.Barrier())
        lines += blocked.totals()
        reduce = "reduce" if self.part.mailbox is None else "reduce_cluster"
        for i in row_pass.reduces:
            r, result = self.reducers[i], self.results[i]
            lines.append(st.Apply(reduce, (result, self.accumulator(i)), r.name))
            initial = self.initial(i)
            if initial is not None:
                lines.append(st.Rows((st.Assign(r.cell(result), r.combined(r.cell(result), initial)),)))
            self.values.wrote(*results_of(self.graph, self.graph[i]))
        return [st.Scope(tuple(lines))] if row_pass.reduces or row_pass.scans else lines

    def _stretch(self, row_pass: LoopPass, blocked: BlockedSums, stretch: Stretch | None) -> Scope:
        vector = self.part.vectors.get(row_pass.size, 1)
        scope = self.values.open(PER_PLACE, frozenset(row_pass.uses), frozenset(row_pass.caches), vector, stretch)
        self._roots(row_pass, blocked, scope)
        return scope

    def _scans(self, row_pass: LoopPass) -> dict[int, st.Scan]:
        """Return the combiner, the name and the first value of each scan of a pass."""
        scans: dict[int, st.Scan] = {}
        for i in row_pass.scans:
            name = self.names.fresh(f"{self.graph[i].name or 'scan'}_so_far")
            first = self.values.element(self.graph[i].operands[1], ()).value
            scans[i] = st.Scan(self.reducers[i].name, name, first)
        return scans

    def _roots(self, row_pass: LoopPass, blocked: BlockedSums, scope: Scope) -> None:
        """Add to ``scope`` what a pass caches, reduces and writes at each place."""
        graph, lines = self.graph, scope.lines[PER_PLACE]
        for i, index in row_pass.caches:
            self.values.element(i, index)
        for i in row_pass.keeps:
            lines.append(self._kept(i))
        for i in row_pass.reduces:
            r = self.reducers[i]
            index, _ = self.shape.operand_elements(graph[i])
            values = [self.values.element(o, index).value for o in graph[i].operands[: r.fields]]
            target = r.cell(blocked.target(i))
            lines.append(st.Assign(target, r.combined(target, r.value(values))))
        for i in row_pass.partials:
            index, _ = self.shape.operand_elements(graph[i])
            lines.append(self._added(i, Ref(self.names.own((i, index)), self.reducers[i].dtype)))
        for i in row_pass.writes:
            index = self.shape.value_elements(i)[0]
            value = self.values.element(i, index)
            lines.append(self._write(i, index, value, scope))

    def _kept(self, i: int) -> st.Assign:
        """Cache a value of this place for later passes."""
        index, _ = self.shape.value_elements(i)
        value, cell = self.values.element(i, index, root=True), self._cells[i]
        position = position_in(self.part.pattern.bindings[i], self.shape.row, index)
        assert isinstance(cell, Ref) and position is not None
        return st.Assign(Element(cell.name, self.values.index(position), cell.dtype), value.value)

    def start(self, i: int) -> Value:
        """Return the value that the accumulators of a reduction start from."""
        r = self.reducers[i]
        if r.identity is not None:
            return r.identity
        return r.value([self.values.element(o, ()).value for o in self.graph[i].operands[r.fields :]])

    def initial(self, i: int) -> Value | None:
        """Return the reduction's own initial value where that is not the neutral one."""
        r = self.reducers[i]
        if r.identity is None:
            return None
        value = self.values.element(self.graph[i].operands[1], ()).value
        return None if value == r.identity else value


def _shape(part: Part) -> model.RowShape:
    split, met = part.split, part.mailbox
    shape = model.RowShape(
        split.rows,
        split.period,
        split.rows_per_block,
        split.lanes,
        split.order is Order.LANES,
        split.sequence,
        row_vector=split.row_vector,
    )
    return shape if met is None else replace(
        shape, cluster=split.cluster, exchange_offset=met.offset, exchange_size=met.size
    )  # fmt: skip
