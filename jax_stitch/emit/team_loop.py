"""One loop of a team in the kernel language: its threads go through each iteration sweep by sweep, and through loops in
its body as one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, prod

from jax_stitch.analysis.binding import inner, inner_sizes, is_uniform
from jax_stitch.analysis.contraction import contraction, one_literal, step_of
from jax_stitch.analysis.maps import Index
from jax_stitch.analysis.patterns.chunks import chunk_width
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.sweeps import (
    Sweep,
    Target,
    Write,
    binding_of,
    carried_by,
    guarded_from,
    index_at,
    results_in,
    step_groups,
)
from jax_stitch.analysis.terms import step_count, terms_of
from jax_stitch.analysis.windows import window_index, window_starts
from jax_stitch.emit.blocked_steps import PRODUCT_BLOCK, BlockedSteps
from jax_stitch.emit.body import PER_PLACE, PER_ROW, UNIFORM, Scope
from jax_stitch.emit.cpp.lines import tables
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.epilogue import EpilogueWriter
from jax_stitch.emit.operations import rounded
from jax_stitch.emit.passes import place_axes
from jax_stitch.emit.reducers import Reducer, reducer
from jax_stitch.emit.team_values import TeamEvaluator
from jax_stitch.graph.model import Graph
from jax_stitch.ir.indices import Expr, const, linearize, var
from jax_stitch.ir.indices.variables import PLACE, TERM
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element as Cell
from jax_stitch.kernel.expressions import Field, Fused, Op, Ref, Value
from jax_stitch.kernel.literals import computed, literal
from jax_stitch.kernel.threads import How, Reach, Space, Who
from jax_stitch.schedule.model import Part, Storage, StorageKind
from jax_stitch.schedule.team import Team
from jax_stitch.util.values import replace


class LoopWriter:
    """Writes one loop: what comes before its steps, its steps, what comes after. ``graph`` is what is outside for it,
    ``names`` those of its body. Values outside are in ``buffers``, or in what the team of a loop around it ``keeps``;
    those that it leaves go to ``out``, where they are asked for.
    """

    def __init__(
        self,
        graph: Graph,
        part: Part,
        team: Team,
        names: Names,
        buffers: Mapping[int, str],
        keeps: Mapping[int, str],
        out: Mapping[int, str],
    ):
        self._graph, self._part, self._team, self._loop = graph, part, team, team.loop
        self._names, self._sources, self._out = names, {**buffers, **keeps}, out
        body = self._loop.body
        self._cached = {i: names.fresh(f"kept_{body[i].name or body[i].op}") for i in team.cached}
        self._cached |= {i: self._cached[self._loop.carried[k].parameter] for i, (k, _) in self._loop.placed.items()}
        arrays = {i: buffers[o] for i, o in self._loop.arrays.items() if o in buffers}
        around = {i: keeps[o] for i, o in self._loop.arrays.items() if o in keeps}
        self._values = TeamEvaluator(self._body_part(around), names, arrays, self._cached | around)
        kept = {c.result: self._cached[c.parameter] for c in self._loop.carried if c.result is not None}
        self._epilogue = EpilogueWriter(part, self._loop, names.beside(graph), buffers, kept, out)
        prefix = "" if self._loop.step == "step" else f"{self._loop.step}_"
        self._reducers: dict[int, Reducer] = {}
        for sweep in (sweep for group in team.groups for sweep in group):
            for r in (r for r in sweep.reduces if body[r].op == "reduce"):
                self._reducers[r] = reducer(body, body[r], f"{prefix}Combine_{r}")
        self._inner = {node: self._writer_of(node, arrays, around) for node in team.inner}

    def _writer_of(self, node: int, arrays: Mapping[int, str], around: Mapping[int, str]) -> LoopWriter:
        """Return the writer of a loop in the body."""
        team, body = self._team.inner[node], self._loop.body
        names = self._names.beside(team.loop.body)
        out = {i: self._cached[i] for i in self._loop.results_of(node) if i in self._cached}
        return LoopWriter(body, self._part, team, names, arrays, {**self._cached, **around}, out)

    def _body_part(self, around: Collection[int]) -> Part:
        """Return the body as a part: everything is computed, but for what is cached and the arrays outside."""
        loop, body = self._loop, self._loop.body
        cached = {**loop.cached, **{i: tuple(map(inner, body[i].tensor.dims)) for i in around}}
        outside = {*loop.arrays, *(c.parameter for c in loop.carried)}
        storage = {i: Storage(i, StorageKind.SHARED, body[i].tensor, prod(inner_sizes(b))) for i, b in cached.items()}
        inside = frozenset(n.id for n in body.nodes if n.id not in outside)
        return replace(
            self._part, pattern=Pattern(inside, loop.rows, dict(cached), tuple(loop.arrays), ()), storage=storage
        )

    # -- for the part

    def combiners(self) -> tuple[model.Combiner, ...]:
        """Return the combiners of the loop's reductions and of those in its body."""
        own = tuple(r.combiner for r in self._reducers.values())
        return sum((w.combiners() for w in self._inner.values()), own)

    def tables(self) -> tuple[model.Table, ...]:
        """Return the constant arrays of both."""
        own = (*tables(self._loop.body, self._values.tables), *self._epilogue.tables())
        return sum((w.tables() for w in self._inner.values()), own)

    def declared(self) -> tuple[st.Statement, ...]:
        """Return the declarations of cached arrays, and the loop-invariant values."""
        own = (*self._arrays(), *self._values.uniform.lines[UNIFORM], *self._epilogue.declared())
        return sum((w.declared() for w in self._inner.values()), own)

    def _arrays(self) -> list[st.Allocate]:
        arrays: list[st.Allocate] = []
        for i, array in self._team.cached.items():
            scratch = "" if array.scratch is None else f"scratch_{array.scratch}"
            name, dtype = self._cached[i], array.type.dtype
            made = st.Allocate(name, dtype, Space.TEAM, array.size, offset=array.offset, copies=array.copies)
            arrays.append(replace(made, scratch=scratch, in_memory=array.is_stored))
        return arrays

    def statements(self) -> tuple[st.Statement, ...]:
        """Return the loop itself."""
        sync = st.Barrier(Reach.GRID if self._loop.blocks > 1 else Reach.BLOCK)
        groups: list[list[st.Statement]] = []
        for group in self._team.groups:
            groups.append([*(s for sweep in group for s in self._sweep(sweep)), sync])
        groups.append([st.Swap(self._cached[i], k.type.dtype) for i, k in self._team.cached.items() if k.copies == 2])
        first = guarded_from(self._loop, self._team.groups)
        step = [s for group in groups[:first] for s in group]
        step += self._where_guarded([s for group in groups[first:] for s in group], sync)
        start, end = self._start(), self._end()
        return (*start, sync, st.For.times(self._loop.step, self._loop.trips, (*self._tests(), *step)), *end)

    def _where_guarded(self, statements: Sequence[st.Statement], sync: st.Barrier) -> Sequence[st.Statement]:
        """Return statements that are executed only where the loop's guard holds. All threads have tested it before one
        goes on to the next iteration, whose guard lies in the same place.
        """
        if self._loop.guard is None:
            return statements
        test = st.LeaveUnless(Cell(self._cached[self._loop.guard], const(0), "pred"))
        last = max(n for n, s in enumerate(statements) if s == sync)
        done = [s for n, s in enumerate(statements) if n != last]
        return [st.For.times(f"{self._loop.step}_turn", 1, (test, *done)), sync]

    def _tests(self) -> list[st.LeaveUnless]:
        test = self._loop.test
        return [] if test is None else [st.LeaveUnless(Cell(self._cached[test], const(0), "pred"))]

    # -- before and after the steps

    def _start(self) -> list[st.Items]:
        statements: list[st.Items] = []
        for c in self._loop.carried:
            dtype, dims = self._graph[c.initial].tensor.dtype, self._graph[c.initial].tensor.dims
            size = self._team.cached[c.parameter].size
            index = index_at(self._loop, c.binding, var(PLACE, size))
            constant = one_literal(self._graph, c.initial)
            if constant is not None:
                value: Value = literal(constant, dtype)
            else:
                value = Cell(self._sources[c.initial], self._values.index(linearize(index, dims)), dtype)
            statements.append(st.Items(*place_axes(size), (), (st.Assign(self._own(c.parameter, size), value),)))
        return statements

    def _own(self, i: int, size: int) -> Cell:
        """Return a place of what the team caches of a value."""
        return Cell(self._cached[i], var(PLACE, size), self._team.cached[i].type.dtype)

    def _end(self) -> list[st.Items]:
        statements: list[st.Items] = []
        for c in self._loop.carried:
            if c.result is None or c.result not in self._out:
                continue
            tensor = self._graph[c.result].tensor
            size = self._team.cached[c.parameter].size
            index = index_at(self._loop, c.binding, var(PLACE, size))
            target = Cell(self._out[c.result], self._values.index(linearize(index, tensor.dims)), tensor.dtype)
            write = st.Assign(target, self._own(c.parameter, size))
            statements.append(st.Items(*place_axes(size), (), (self._guarded(write, is_uniform(c.binding)),)))
        return [*statements, *self._epilogue.statements()]

    def _guarded(self, write: st.Assign, uniform: bool) -> st.Assign:
        """Return a write that one team does if all have the same value."""
        return replace(write, who=Who.FIRST_ROW) if self._loop.rows > 1 and uniform else write

    # -- sweeps

    def _sweep(self, sweep: Sweep) -> Sequence[st.Statement]:
        if sweep.inner is not None:
            return self._inner[sweep.inner].statements()
        if not sweep.reduces:
            scope = self._open()
            writes = self._writes(sweep)
            self._values.close()
            divided = sweep.sharing.pieces > 1
            axes = place_axes(sweep.lanes, sweep.runs, How.SERIAL if sweep.adds else How.LANE)
            return [st.Items(*axes, (), (*_lines(scope), *writes), divided)]
        return self._split(sweep) if sweep.sharing.split > 1 else self._chunks(sweep)

    def _open(self) -> Scope:
        return self._values.open(PER_PLACE, frozenset(), frozenset())

    def _accumulators(self, sweep: Sweep) -> dict[int, list[Ref]]:
        return {r: [Ref(f"sum_{r}_{u}", self._sum_type(r)) for u in range(sweep.sharing.sums)] for r in sweep.reduces}

    def _sum_type(self, r: int) -> str:
        made = self._reducers.get(r)
        return computed(self._loop.body[r].tensor.dtype) if made is None else made.dtype

    def _chunks(self, sweep: Sweep) -> list[st.Statement]:
        groups = step_groups(self._loop, sweep, self._team.threads)
        sums, vector = self._accumulators(sweep), chunk_width(sweep, max(map(len, groups)), self._team.vector)
        before, declared = self._begin(sums)
        steps = tuple(self._steps(sweep, group, sums) for group in groups)
        declared += tuple(s for group in groups for s in self._blocked(group, sums, 1).declarations())
        shape, divided = (*place_axes(sweep.lanes, sweep.runs), 1, vector), _is_divided(sweep, before)
        fragments = sweep.sharing.fragments
        return [*before, st.Sums(*shape, declared, steps, self._finish(sweep, sums), divided, fragments=fragments)]

    def _split(self, sweep: Sweep) -> list[st.Statement]:
        sums, split = self._accumulators(sweep), sweep.sharing.split
        groups = step_groups(self._loop, sweep, self._team.threads)
        before, declared = self._begin(sums)
        steps = tuple(self._steps(sweep, group, sums) for group in groups)
        declared += tuple(s for group in groups for s in self._blocked(group, sums, split).declarations())
        shape, divided = (*place_axes(sweep.lanes, sweep.runs), split, 1), _is_divided(sweep, before)
        return [*before, st.Sums(*shape, declared, steps, self._finish(sweep, sums), divided)]

    def _begin(self, sums: dict[int, list[Ref]]) -> tuple[list[st.Statement], tuple[st.Sum, ...]]:
        """Return the statements before the sweep, and its accumulators with their initial values."""
        scope = self._open()
        accumulators: list[st.Sum] = []
        for r, cells in sums.items():
            combiner = self._reducers[r].name if r in self._reducers else ""
            accumulators += [st.Sum(cell.name, combiner, cell.dtype, self._first(r)) for cell in cells]
        self._values.close()
        return _lines(scope), tuple(accumulators)

    def _first(self, r: int) -> Value:
        """Return the value that accumulators start from."""
        node = self._loop.body[r]
        if node.op == "dot":
            return literal(0, computed(node.tensor.dtype))
        made = self._reducers[r]
        if made.identity is not None:
            return made.identity
        return made.value([self._values.element(o, ()).value for o in node.operands[made.fields :]])

    def _index(self, r: int, place: Expr) -> Index:
        return index_at(self._loop, binding_of(self._loop, r), place)

    def _steps(self, sweep: Sweep, reduces: Sequence[int], sums: dict[int, list[Ref]]) -> st.Steps:
        """Return the steps that some of the sweep's reductions take together."""
        scope = self._open()
        updates: list[st.Assign] = []
        blocked = self._blocked(reduces, sums, sweep.sharing.split)
        for r in reduces:
            node = self._loop.body[r]
            for target, place in zip(map(blocked.target, sums[r]), sweep.places(), strict=True):
                terms = terms_of(self._loop.body, node, self._index(r, place), step_of(self._loop.body, node))
                values = [self._values.element(i, at).value for i, at in terms]
                if node.op == "dot":
                    left, right = values
                    updates.append(st.Assign(target, Fused(target.dtype, left, right, target)))
                else:
                    made = self._reducers[r]
                    updates.append(st.Assign(target, made.combined(target, made.value(values))))
        self._values.close()
        how = How.LANE if sweep.sharing.split > 1 else How.SERIAL
        term = st.Axis(TERM, step_count(self._loop.body, reduces[0]), how)
        return st.Steps(term, (*_lines(scope), *updates), blocked.joins())

    def _blocked(self, reduces: Sequence[int], sums: dict[int, list[Ref]], split: int) -> BlockedSteps:
        """Return the blocks of the steps that some reductions take together, where the steps are many."""
        count = ceil(step_count(self._loop.body, reduces[0]) / split)
        made = {cell: self._reducers.get(r) for r in reduces for cell in sums[r]}
        return BlockedSteps(count, PRODUCT_BLOCK if None in made.values() else self._part.sum_block, made)

    def _finish(self, sweep: Sweep, sums: dict[int, list[Ref]]) -> st.Body:
        """Return the results of the reductions, and what is computed from them."""
        body = self._loop.body
        scope = self._open()
        head: list[st.Statement] = []
        for r, cells in sums.items():
            results = results_in(body, r, self._loop.intermediates)
            for cell, place in zip(cells, sweep.places(), strict=True):
                total = self._total(r, cell)
                for k, i in results.items():
                    dtype = body[i].tensor.dtype
                    value = total if len(body[r].operands) == 2 else Field(total, k, computed(dtype))
                    variable = Ref(self._names.fresh(body[i].name or body[i].op), dtype)
                    head.append(st.Define(variable.name, dtype, rounded(dtype, value)))
                    self._values.know(i, self._index(r, place), variable)
        writes = self._writes(sweep)
        self._values.close()
        return (*head, *_lines(scope), *writes)

    def _total(self, r: int, cell: Ref) -> Value:
        """Return a reduction's result, with its own initial value if its accumulator started from the neutral one."""
        made = self._reducers.get(r)
        if made is None or made.identity is None:
            return cell
        initial = self._values.element(self._loop.body[r].operands[1], ()).value
        return cell if initial == made.identity else made.combined(cell, initial)

    def _writes(self, sweep: Sweep) -> list[st.Statement]:
        statements: list[st.Statement] = []
        for w in sweep.writes:
            if w.target is Target.STACKED and self._loop.stacked[w.slot].result not in self._out:
                continue
            for place in sweep.places():
                index = index_at(self._loop, w.binding, place)
                if w.target is Target.ADDED:
                    statements.append(self._added(w, index))
                    continue
                made = contraction(self._loop.body, w.node) if w.target is Target.INTERMEDIATE else None
                root = w.target is Target.INTERMEDIATE and w.node == w.slot and made is None
                statements.append(self._write(w, index, self._values.element(w.node, index, root=root).value))
        return statements

    def _added(self, w: Write, index: Index) -> st.Add:
        """Return the statement that adds an element of an update where it belongs, if its window lies inside."""
        scatter = self._loop.body[w.slot]
        tensor, window = scatter.tensor, self._loop.body[w.node].tensor.dims[1:]
        value = self._values.element(w.node, index).value
        position, starts = list(window_index(index)), list[st.Inside]()
        for d, (operand, at) in window_starts(scatter, index).items():
            high = tensor.dims[d] - window[d]
            name = self._names.fresh(f"start_{scatter.op}")
            starts.append(st.Inside(name, self._values.element(operand, at).value, high))
            position[d] = position[d] + var(name, low=0, high=high)
        target = Cell(self._cached[w.slot], self._values.index(linearize(position, tensor.dims)), tensor.dtype)
        return st.Add(target, value, tuple(starts))

    def _write(self, w: Write, index: Index, value: Value) -> st.Assign:
        loop = self._loop
        index = w.whole_index(index)
        if w.added:
            dtype = loop.body[w.node].tensor.dtype
            value = rounded(dtype, Op("add", dtype, (value, literal(0, dtype))))
        if w.target is Target.STACKED:
            stacked = loop.stacked[w.slot]
            place = tuple(a + b for a, b in zip(index, stacked.starts, strict=True))
            at = self._values.index(linearize(place, self._graph[stacked.result].tensor.dims))
            target = Cell(self._out[stacked.result], at, loop.body[w.node].tensor.dtype)
            return self._guarded(st.Assign(target, value), is_uniform(stacked.binding))
        i = w.slot if w.target is Target.INTERMEDIATE else carried_by(loop, w).parameter
        if w.target is Target.PLACED:
            index = self._values.place_of(loop.body[w.slot], index)
        array = self._team.cached[i]
        name = f"next_{self._cached[i]}" if array.copies == 2 else self._cached[i]
        return st.Assign(Cell(name, self._values.index(self._values.position(i, index)), array.type.dtype), value)


def _is_divided(sweep: Sweep, before: Sequence[st.Statement]) -> bool:
    """Return whether helpers may share a sweep: not if statements before it read what the team caches."""
    return sweep.sharing.pieces > 1 and not before


def _lines(scope: Scope) -> list[st.Statement]:
    return [*scope.lines[PER_ROW], *scope.lines[PER_PLACE]]
