"""A loop in teams as one part of a kernel: the team's threads go through each iteration phase by phase."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from jax_stitch.analysis import Expr, linearize, var
from jax_stitch.analysis.binding import inner_sizes, position_in
from jax_stitch.analysis.locality import PLACE, ROW
from jax_stitch.analysis.maps import STEP, Index
from jax_stitch.emit import scalar
from jax_stitch.emit.body import PER_PLACE, PER_ROW, UNIFORM, Evaluator, Scope, Value
from jax_stitch.emit.lines import comment, indent, source_lines, table_lines
from jax_stitch.emit.names import Names
from jax_stitch.emit.reducers import Reducer, reducer
from jax_stitch.graph.model import Graph, Node
from jax_stitch.ir.pattern import Pattern
from jax_stitch.loops.layouts import chunk_of, passes
from jax_stitch.loops.phases import Phase, Target, Write, binding_of, index_at, results_in, step_count
from jax_stitch.loops.scatter import window_place, window_starts
from jax_stitch.loops.team import contraction, is_uniform, one_literal, terms_of
from jax_stitch.schedule.model import Part, Place, Storage
from jax_stitch.schedule.team import Kept, Team


class TeamEvaluator(Evaluator):
    """Evaluates elements of a loop's body; what the team keeps is read from its arrays."""

    def __init__(self, part: Part, names: Names, buffers: dict[int, str], kept: dict[int, str]):
        super().__init__(part, names, buffers, kept)

    def _kept_or_stored(self, node: Node, index: Index) -> Value | None:
        if node.id not in self._stored_text:
            return None
        position = self.position(node.id, index)
        return self._named(node, f"{self._stored_text[node.id]}[{self.render(position)}]", PER_PLACE)

    def position(self, i: int, index: Index) -> Expr:
        """The place of an element in what the team keeps of a value."""
        found = position_in(self._part.pattern.bindings[i], self._row, index)
        assert found is not None, f"%{i} is not local"
        return found

    def _compute(self, node: Node, index: Index) -> Value:
        if node.op != STEP:
            return super()._compute(node, index)
        a, ctype = node.attributes, scalar.computed_type(node.tensor.dtype)
        return self._named(node, f"{ctype}({a['start']} + step * {a['by']})", PER_PLACE)

    def _level(self, e: Expr) -> int:
        return UNIFORM if all(v.name == ROW for v in e.variables()) else PER_PLACE

    def know(self, i: int, index: Index, text: str) -> None:
        """Elements that the open stage has in a variable."""
        self._scopes[-1].known[i, index] = Value(text, PER_PLACE)


class TeamEmitter:
    """Writes one loop; the same interface as ``PartEmitter``."""

    def __init__(self, graph: Graph, part: Part, name: str, crossing: Collection[int] = ()):
        """``crossing`` are the ids of what other phases of the kernel write."""
        assert part.team is not None
        self._crossing = crossing
        self._graph, self._part, self.name = graph, part, name
        self._team: Team = part.team
        self._loop = part.team.loop
        self.inputs, self.outputs, self.scratch = part.pattern.inputs, part.pattern.outputs, part.team.scratch
        self._names = Names(self._loop.body)
        outer = Names(graph)
        self._buffers = {i: f"in_{outer.of(graph[i])}" for i in self.inputs}
        self._out = {i: f"out_{outer.of(graph[i])}" for i in self.outputs}
        body = self._loop.body
        self._kept = {i: self._names.fresh(f"kept_{body[i].name or body[i].op}") for i in self._team.kept}
        self._values = TeamEvaluator(
            self._body_part(), self._names, {i: self._buffers[o] for i, o in self._loop.arrays.items()}, self._kept
        )
        self._reducers: dict[int, Reducer] = {}
        for level in self._team.levels:
            for phase in level:
                for r in phase.reduces:
                    if body[r].op == "reduce":
                        self._reducers[r] = reducer(body, body[r], f"Combine_{r}")

    def _body_part(self) -> Part:
        """The body as a part: everything is computed, but for what is kept and the arrays outside."""
        loop, body = self._loop, self._loop.body
        kept = loop.kept
        outside = {*loop.arrays, *(c.parameter for c in loop.carried)}
        storage = {i: Storage(i, Place.SHARED, body[i].tensor, prod(inner_sizes(b))) for i, b in kept.items()}
        inside = frozenset(n.id for n in body.nodes if n.id not in outside)
        return replace(
            self._part, pattern=Pattern(inside, loop.rows, dict(kept), tuple(loop.arrays), ()), storage=storage
        )

    # -- the whole function

    def emit(self) -> tuple[str, str]:
        """The file-scope declarations and the function."""
        loop, team = self._loop, self._team
        spread = loop.blocks > 1
        sync = "ST_GRID_SYNC" if spread else "ST_SYNC"
        step: list[str] = []
        for level in team.levels:
            for phase in level:
                step += self._phase(phase)
            step.append(sync)
        swaps = [
            f"ST_SWAP({self._ctype(k)}, {self._kept[i]}, next_{self._kept[i]})"
            for i, k in team.kept.items()
            if k.copies == 2
        ]
        index = "int64_t" if self._part.wide else "int32_t"
        parameters = [f"const {self._stored(i)}* {self._access(i)} {self._buffers[i]}" for i in self.inputs]
        parameters += [f"{self._stored(i)}* ST_RESTRICT {self._out[i]}" for i in self.outputs]
        access = "ST_CROSSING" if spread else "ST_RESTRICT"
        parameters += [f"{scalar.STORAGE[t.dtype]}* {access} scratch_{k}" for k, t in enumerate(team.scratch)]
        parameters += ["char* const shared", *["const int slot"] * spread]
        start, end = self._start(), self._end()
        lines = [
            *self._comment(),
            f"ST_PART {self.name}({', '.join([f'const {index} block', *parameters])}) {{",
            f"  using index = {index};",
            f"  ST_{'SPREAD_' if spread else ''}TEAM({team.threads})",
            "  const index row = block;",
            f"  (void)row, (void)shared{', (void)slot' if spread else ''};",
            *indent(self._declared()),
            *indent(self._values.uniform.lines[UNIFORM]),
            *indent(start),
            f"  {sync}",
            f"  for (index step = 0; step < {loop.trips}; ++step) {{",
            *indent([*step, *swaps], 2),
            "  }",
            *indent(end),
            "}",
        ]
        head = [*(r.text for r in self._reducers.values()), *table_lines(loop.body, self._values.tables)]
        return "\n".join(head), "\n".join(lines)

    def _comment(self) -> list[str]:
        loop, team = self._loop, self._team
        parts = f"{loop.rows} teams of {team.threads} threads" if loop.rows > 1 else f"a team of {team.threads} threads"
        parts += f" in each of {loop.blocks} blocks" if loop.blocks > 1 else ""
        what = f"a loop of {loop.trips} steps" if loop.carried else "a sum over the steps of a loop"
        return [comment(f"{what}, {parts}, {len(team.levels)} phases a step"), *source_lines(loop.body.nodes)]

    def _access(self, i: int) -> str:
        return "ST_CROSSING" if i in self._crossing else "ST_RESTRICT"

    def _stored(self, i: int) -> str:
        return scalar.STORAGE[self._graph[i].tensor.dtype]

    def _ctype(self, kept: Kept) -> str:
        return scalar.computed_type(kept.type.dtype)

    def _declared(self) -> list[str]:
        found: list[str] = []
        for i, kept in self._team.kept.items():
            ctype, name = self._ctype(kept), self._kept[i]
            if kept.scratch is None:
                place = f"reinterpret_cast<{ctype}*>(shared + {kept.offset})"
            else:
                place = f"scratch_{kept.scratch} + row * {kept.copies * kept.size}"
            constant = "" if kept.copies == 2 else "const "
            found.append(f"{ctype}* {constant}{name} = {place};")
            if kept.copies == 2:
                found.append(f"{ctype}* next_{name} = {name} + {kept.size};")
        return found

    # -- before and after the steps

    def _items(self, size: int, lines: Sequence[str]) -> list[str]:
        return [f"ST_EACH_ITEM(1, {size})", *indent(lines), "ST_END_ITEM"]

    def _start(self) -> list[str]:
        lines: list[str] = []
        for c in self._loop.carried:
            node = self._graph[c.initial]
            size = self._team.kept[c.parameter].size
            index = index_at(self._loop, c.binding, var(PLACE, size))
            literal = one_literal(self._graph, c.initial)
            if literal is not None:
                value = scalar.literal(literal, node.tensor.dtype)
            else:
                place = self._values.render(linearize(index, node.tensor.dims))
                value = scalar.load(node.tensor.dtype, f"{self._buffers[c.initial]}[{place}]")
            lines += self._items(size, [f"{self._kept[c.parameter]}[j] = {value};"])
        return lines

    def _end(self) -> list[str]:
        lines: list[str] = []
        for c in self._loop.carried:
            if c.result is None:
                continue
            node = self._graph[c.result]
            size = self._team.kept[c.parameter].size
            index = index_at(self._loop, c.binding, var(PLACE, size))
            place = self._values.render(linearize(index, node.tensor.dims))
            value = scalar.store(node.tensor.dtype, f"{self._kept[c.parameter]}[j]")
            guard = self._guard(is_uniform(c.binding))
            lines += self._items(size, [f"{guard}{self._out[c.result]}[{place}] = {value};"])
        return lines

    def _guard(self, uniform: bool) -> str:
        """What all teams have alike is written by one."""
        return "if (row == 0) " if self._loop.rows > 1 and uniform else ""

    # -- phases

    def _phase(self, phase: Phase) -> list[str]:
        if not phase.reduces:
            scope = self._open()
            writes = self._writes(phase)
            self._values.close()
            lines = [*_lines(scope), *writes]
            each = "ST_EACH_ITEM_IN_TURN" if phase.adds else "ST_EACH_ITEM"
            return [f"{each}({phase.runs}, {phase.lanes})", *indent(lines), "ST_END_ITEM"]
        return self._split(phase) if phase.layout.split > 1 else self._chunks(phase)

    def _open(self) -> Scope:
        return self._values.stage(PER_PLACE, frozenset(), frozenset())

    def _accumulators(self, phase: Phase) -> dict[int, list[str]]:
        return {r: [f"sum_{r}_{u}" for u in range(phase.layout.sums)] for r in phase.reduces}

    def _chunks(self, phase: Phase) -> list[str]:
        turns = passes(self._loop, phase, self._team.threads)
        sums, vector = self._accumulators(phase), self._team.vector * chunk_of(phase, max(map(len, turns)))
        before, lines = self._begin(phase, "ST_TILE", sums, vector)
        for turn in turns:
            steps, inner = self._steps(phase, turn, "ST_T", sums)
            lines += [f"ST_STEPS({steps})", "  ST_LANES", *indent(inner, 2), "  ST_END_LANES", "ST_END_STEPS"]
        lines += ["ST_LANES", *indent(self._finish(phase, "ST_T", sums)), "ST_END_LANES"]
        head = f"ST_EACH_CHUNK({phase.runs}, {phase.lanes}, {vector})"
        return [*before, head, *indent(lines), "ST_END_CHUNK"]

    def _split(self, phase: Phase) -> list[str]:
        sums, split = self._accumulators(phase), phase.layout.split
        before, lines = self._begin(phase, "ST_SPLIT", sums, split)
        for turn in passes(self._loop, phase, self._team.threads):
            steps, inner = self._steps(phase, turn, "ST_S", sums)
            lines += [f"ST_SPLIT_STEPS({steps}, {split})", *indent(inner), "ST_END_SPLIT_STEPS"]
        for r, names in sums.items():
            lines += [f"ST_COMBINE({self._functor(r)}, {name}, {split})" for name in names]
        lines += ["ST_FIRST_PART", *indent(self._finish(phase, "", sums)), "ST_END_FIRST_PART"]
        return [*before, f"ST_EACH_SPLIT({phase.runs}, {phase.lanes}, {split})", *indent(lines), "ST_END_SPLIT"]

    def _functor(self, r: int) -> str:
        if r in self._reducers:
            return self._reducers[r].name
        return f"st::Sum<{scalar.computed_type(self._loop.body[r].tensor.dtype)}>"

    def _begin(self, phase: Phase, macro: str, sums: dict[int, list[str]], width: int) -> tuple[list[str], list[str]]:
        """What starts the accumulators: lines before the phase, and their declarations inside it."""
        scope = self._open()
        lines = []
        for r, names in sums.items():
            lines += [f"{macro}({self._functor(r)}::T, {n}, {width}, {self._first(r)})" for n in names]
        self._values.close()
        return _lines(scope), lines

    def _first(self, r: int) -> str:
        """What accumulators start from."""
        node = self._loop.body[r]
        if node.op == "dot":
            return "0"
        made = self._reducers[r]
        if made.identity is not None:
            return made.identity
        return f"({made.value([self._values.element(o, ()).text for o in node.operands[made.fields :]])})"

    def _index(self, r: int, place: Expr) -> Index:
        return index_at(self._loop, binding_of(self._loop, r), place)

    def _steps(
        self, phase: Phase, reduces: Sequence[int], macro: str, sums: dict[int, list[str]]
    ) -> tuple[int, list[str]]:
        """How many steps some of the phase's reductions take together, and one of them."""
        scope = self._open()
        sums_of: list[str] = []
        for r in reduces:
            names = sums[r]
            node = self._loop.body[r]
            for name, place in zip(names, phase.places(), strict=True):
                terms = terms_of(self._loop.body, node, self._index(r, place))
                values = [self._values.element(i, at).text for i, at in terms]
                target = f"{macro}({name})"
                if node.op == "dot":
                    ctype = scalar.computed_type(node.tensor.dtype)
                    factors = ", ".join(f"{ctype}({v})" for v in values)
                    sums_of.append(f"{target} = st::fused({factors}, {target});")
                else:
                    made = self._reducers[r]
                    sums_of.append(f"{target} = {made.name}::combine({target}, {made.value(values)});")
        self._values.close()
        return step_count(self._loop, reduces[0]), [*_lines(scope), *sums_of]

    def _finish(self, phase: Phase, macro: str, sums: dict[int, list[str]]) -> list[str]:
        """The results of the reductions, and what is computed from them."""
        body = self._loop.body
        scope = self._open()
        head: list[str] = []
        for r, names in sums.items():
            node = body[r]
            results = results_in(body, r, self._loop.stored)
            for name, place in zip(names, phase.places(), strict=True):
                total = f"{macro}({name})" if macro else name
                made = self._reducers.get(r)
                if made is not None and made.identity is not None:
                    initial = self._values.element(node.operands[1], ()).text
                    if initial != made.identity:
                        total = f"{made.name}::combine({total}, {initial})"
                for k, i in results.items():
                    text = total if made is None else made.field(total, k)
                    dtype = body[i].tensor.dtype
                    variable = self._names.fresh(body[i].name or body[i].op)
                    head.append(f"const {scalar.computed_type(dtype)} {variable} = {scalar.rounded(dtype, text)};")
                    self._values.know(i, self._index(r, place), variable)
        writes = self._writes(phase)
        self._values.close()
        return [*head, *_lines(scope), *writes]

    def _writes(self, phase: Phase) -> list[str]:
        found: list[str] = []
        for w in phase.writes:
            for place in phase.places():
                index = index_at(self._loop, w.binding, place)
                if w.target is Target.ADDED:
                    found.append(self._added(w, index))
                    continue
                made = contraction(self._loop.body, w.node) if w.target is Target.STORED else None
                root = w.target is Target.STORED and w.node == w.slot and made is None
                found.append(self._write(w, index, self._values.element(w.node, index, root=root)))
        return found

    def _added(self, w: Write, index: Index) -> str:
        """An element of an update added where it belongs, if its window lies inside."""
        scatter = self._loop.body[w.slot]
        dims, window = scatter.tensor.dims, self._loop.body[w.node].tensor.dims[1:]
        value = self._values.element(w.node, index).text
        starts = {d: self._values.element(*e).text for d, e in window_starts(scatter, index).items()}
        tests = [f"int64_t({s}) >= 0 && int64_t({s}) <= {dims[d] - window[d]}" for d, s in starts.items()]
        inside = window_place(index)
        moved = {d: f" + index({s})" for d, s in starts.items()}
        places = [
            f"({self._values.render(inside[d])}{moved.get(d, '')}) * {prod(dims[d + 1 :])}" for d in range(len(dims))
        ]
        condition = f"if ({' && '.join(tests)}) " if tests else ""
        return f"{condition}ST_ADD({self._kept[w.slot]}[{' + '.join(places)}], {value})"

    def _write(self, w: Write, index: Index, value: Value) -> str:
        loop = self._loop
        if w.shift:
            index = tuple(a + b for a, b in zip(index, w.shift, strict=True))
        if w.target is Target.STACKED:
            stacked = loop.stacked[w.slot]
            place = tuple(a + b for a, b in zip(index, stacked.starts, strict=True))
            dtype = loop.body[w.node].tensor.dtype
            at = self._values.render(linearize(place, self._graph[stacked.result].tensor.dims))
            guard = self._guard(is_uniform(stacked.binding))
            return f"{guard}{self._out[stacked.result]}[{at}] = {scalar.store(dtype, value.text)};"
        i = w.slot if w.target is Target.STORED else loop.carried[w.slot].parameter
        kept = self._team.kept[i]
        name = f"next_{self._kept[i]}" if kept.copies == 2 else self._kept[i]
        return f"{name}[{self._values.render(self._values.position(i, index))}] = {value.text};"


def _lines(scope: Scope) -> list[str]:
    return [*scope.lines[PER_ROW], *scope.lines[PER_PLACE]]
