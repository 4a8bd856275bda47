"""Evaluating elements inside loops: each value as far outside the loops as it can be, and once for all rows where it is
the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod

from jax_stitch.analysis.binding import inner_sizes, is_uniform, position_in
from jax_stitch.analysis.contraction import contracted, initials, is_contraction, written_out
from jax_stitch.analysis.maps import STEP, Index, Read
from jax_stitch.analysis.patterns.nest import RESULT, Nest, Stacked, slice_index
from jax_stitch.emit.body import PER_PLACE, UNIFORM, Element, Evaluator, Known, Scope
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.operations import rounded
from jax_stitch.emit.reducers import Reducer, reducer
from jax_stitch.emit.rows import Item, Loop, StraightCode
from jax_stitch.graph.model import Node
from jax_stitch.ir.indices import Expr, linearize
from jax_stitch.ir.indices.variables import BATCH, ROW
from jax_stitch.kernel.expressions import Counter, Field, Pick, Products, Ref
from jax_stitch.kernel.expressions import Element as Cell
from jax_stitch.kernel.statements import Define, LeaveUnless, Statement
from jax_stitch.schedule.model import Part

ROWS = 1
"""The bit of a depth that says that rows differ; the others count loops: 1 inside none, 2 inside one, ..."""


def depth_of(nesting: int, differs: bool) -> int:
    """Return how deep in the loops a value is, and whether rows differ in it."""
    return 2 * nesting + (ROWS if differs else 0)


class LoopScope(Scope):
    """The scope of one loop's body (or of what is around all loops): where its pieces go."""

    items: list[Item] | None = None
    piece: StraightCode | None = None


class LoopEvaluator(Evaluator):
    """Evaluates elements of a nest's flat graph. A carried value is the registers that ``carried`` names; a stacked
    array is in the buffer of its output.
    """

    def __init__(self, part: Part, nest: Nest, names: Names, inputs: Mapping[int, str], outputs: Mapping[int, str]):
        super().__init__(part, names, inputs, {})
        self._nest = nest
        self._outputs = outputs
        self._carried = {i: c.parameter for loop in nest.loops for c in loop.carried for i in (c.parameter, c.result)}
        self._stacks: dict[int, Stacked] = {s.result: s for loop in nest.loops for s in loop.stacked}
        self._loop_of = {s.result: loop.number for loop in nest.loops for s in loop.stacked}
        self._open: list[int | None] = []
        self._nesting: dict[str, int] = {}
        self._nesting_of_loop: dict[int, int] = {}
        for loop in nest.loops:
            nesting = 2 if loop.parent is None else self._nesting_of_loop[loop.parent] + 1
            self._nesting[loop.step] = self._nesting_of_loop[loop.number] = nesting
        self._registers = {
            c.parameter: names.fresh(f"carry_{nest.graph[c.parameter].name or c.parameter}")
            for loop in nest.loops
            for c in loop.carried
        }
        self._alike: set[Element] = set()
        self.combiners: dict[int, Reducer] = {}
        self.top = StraightCode()
        self._scopes = [LoopScope({}, piece=self.top)]

    # -- scopes

    @contextmanager
    def inside(self, items: list[Item], loop: int | None) -> Iterator[None]:
        """Collect pieces in ``items`` meanwhile: the body of a loop, or what is around all loops."""
        self._open.append(loop)
        self._scopes.append(LoopScope({}, items=items))
        self.next_piece()
        yield
        self._scopes.pop()
        self._open.pop()

    def next_piece(self, between: Loop | LeaveUnless | None = None) -> None:
        """End the current piece; ``between`` stands before the next."""
        scope = self._at(len(self._scopes) - 1)
        assert scope.items is not None
        if between is not None:
            scope.items.append(between)
        scope.piece = StraightCode()
        scope.items.append(scope.piece)

    def statement(self, line: Statement, *, alike: bool = False) -> None:
        """Add a statement to the current piece."""
        piece = self._at(len(self._scopes) - 1).piece
        assert piece is not None
        (piece.alike if alike else piece.rows).append(line)

    def _at(self, nesting: int) -> LoopScope:
        scope = self._scopes[nesting]
        assert isinstance(scope, LoopScope)
        return scope

    def _innermost(self) -> int:
        return sum(isinstance(s, LoopScope) for s in self._scopes) - 1

    # -- carried values

    def registers(self, parameter: int) -> list[Ref]:
        """Return the places of a carried value."""
        name, dtype = self._registers[parameter], self._graph[parameter].tensor.dtype
        return [Ref(f"{name}_{p}", dtype) for p in range(prod(inner_sizes(self._nest.bindings[parameter])))]

    def alike(self, parameter: int) -> bool:
        """Return whether all rows have the same of a carried value."""
        return is_uniform(self._nest.bindings[parameter])

    # -- evaluating

    def _is_read(self, node: Node) -> bool:
        """Return whether a node is in memory before the kernel runs."""
        return node.id in self._buffers

    def _needs(self, key: Element, asked: bool) -> list[Element]:
        i, index = key
        node = self._graph[i]
        if i in self._carried or self._is_read(node) or node.op in ("constant", "iota", STEP):
            return []
        if i in self._stacks:
            place = self._in_slice(i, index)
            return [] if place is None else [(self._stacks[i].update, place)]
        if node.op == "get-tuple-element" or is_contraction(self._graph, node):
            return [a.element for a in written_out(self._accesses, key)]
        return self._operand_elements(node, index)

    def _make(self, key: Element, asked: bool) -> Known:
        i, index = key
        node = self._graph[i]
        if i in self._carried:
            value = self._register(node, index)
        elif i in self._stacks:
            value = self._stacked(node, index)
        elif self._is_read(node):
            value = self._load(node, index)
        else:
            value = self._compute(node, index)
        self._remember(key, value)
        return value

    def _register(self, node: Node, index: Index) -> Known:
        parameter = self._carried[node.id]
        position = position_in(self._nest.bindings[parameter], self._row, index)
        assert position is not None
        nesting = self._nesting_of_loop[node.attributes["loop"]] - (node.op == RESULT)
        depth, registers = depth_of(nesting, not self.alike(parameter)), self.registers(parameter)
        if position.is_const:
            return Known(registers[position.offset], depth)
        # Registers cannot be indexed: each is compared for.
        choices = tuple(registers[position.low : position.high + 1])
        chosen = Pick(self.index(position), position.low, choices, node.tensor.dtype)
        return self._named(node, chosen, self._join([depth, self._depth_of(position)]))

    def _in_slice(self, i: int, index: Index) -> Index | None:
        """Return where an element of a stacked array is in the slice of the iteration that is being written, if it
        is.
        """
        return slice_index(self._stacks[i], index) if self._loop_of[i] in self._open else None

    def _stacked(self, node: Node, index: Index) -> Known:
        stack = self._stacks[node.id]
        place = self._in_slice(node.id, index)
        if place is not None:
            return self.element(stack.update, place)
        at = linearize(index, node.tensor.dims)
        written = Cell(self._outputs[node.id], self.index(at), node.tensor.dtype)
        return self._named(node, written, self._join([self._depth_of(at), depth_of(1, self._nest.rows > 1)]))

    def _compute(self, node: Node, index: Index) -> Known:
        if node.op == STEP:
            a = node.attributes
            counter = Counter(a["name"], a["start"], a["by"], node.tensor.dtype)
            return self._named(node, counter, depth_of(self._nesting[a["name"]], False))
        if node.op == "get-tuple-element":
            whole = self.element(node.operands[0], index)
            return Known(Field(whole.value, node.attributes["index"], node.tensor.dtype), whole.depth)
        if not is_contraction(self._graph, node):
            return super()._compute(node, index)
        steps = [[self.element(i, at) for i, at in step] for step in contracted(self._graph, node, index)]
        depth = self._join(v.depth for step in steps for v in step)
        if node.op == "dot":
            pairs = tuple((a.value, b.value) for a, b in steps)
            return self._named(node, Products(node.tensor.dtype, pairs), depth)
        return self._reduction(node, steps, depth)

    def _reduction(self, node: Node, steps: list[list[Known]], depth: int) -> Known:
        """Return the elements of a reduction combined one by one."""
        if node.id not in self.combiners:
            self.combiners[node.id] = reducer(self._graph, node, f"Combine_{node.id}")
        r = self.combiners[node.id]
        start = [self.element(o, ()) for o in initials(node)]
        value = r.value([v.value for v in start])
        for step in steps:
            value = r.combined(value, r.value([v.value for v in step]))
        depth = self._join([depth, *(v.depth for v in start)])
        if r.fields == 1:
            return self._named(node, rounded(node.tensor.dtype, value), depth)
        name = self._names.fresh(node.name or node.op)
        return Known(Ref(name, r.name), self._write(Define(name, r.name, value), depth))

    # -- depths

    def _join(self, depths: Iterable[int]) -> int:
        nesting = differs = 0
        for depth in depths:
            nesting, differs = max(nesting, depth >> 1), differs | (depth & ROWS)
        return 2 * nesting + differs

    def _depth_of(self, e: Expr) -> int:
        depth = UNIFORM
        for v in e.variables():
            if v.name in (ROW, BATCH):
                here = depth_of(1, True)
            elif v.name in self._nesting:
                here = depth_of(self._nesting[v.name], False)
            else:
                symbol = self._symbol(v.name)
                assert symbol is not None, v.name
                here = symbol.depth
            depth = self._join([depth, here])
        return depth

    def _choice_depth(self, reads: tuple[Read, ...], node: Node) -> int:
        alike = all(self._is_alike(g.value) for r in reads for g in r.guards)
        alike = alike and all(self._element_is_alike(node.operands[r.operand], r.index) for r in reads)
        return depth_of(self._innermost(), not alike)

    def _is_alike(self, e: Expr) -> bool:
        """Return whether all rows have the same of an index. What stands for data that is not read yet counts as the
        same: whoever comes upon it follows that data too.
        """
        for v in e.variables():
            symbol = self._symbol(v.name)
            if v.name in (ROW, BATCH) or (symbol is not None and symbol.depth & ROWS):
                return False
        return True

    def _element_is_alike(self, i: int, index: Index) -> bool:
        """Return whether all rows compute the same for an element, whatever it takes to compute it."""
        if self._nest.rows == 1:
            return True
        waiting: list[Element] = [(i, index)]
        seen: set[Element] = set()
        while waiting:
            key = waiting.pop()
            if key in seen or key in self._alike:
                continue
            seen.add(key)
            node, at = self._graph[key[0]], key[1]
            if node.id in self._carried:
                if not self.alike(self._carried[node.id]):
                    return False
            elif node.id in self._stacks and self._in_slice(node.id, at) is None:
                return False
            elif self._is_read(node) or node.op in ("constant", "iota", STEP):
                if not all(map(self._is_alike, at)):
                    return False
            elif needed := self._needs(key, False):
                waiting += needed
            else:
                if not all(self._is_alike(g.value) for r in self._accesses.reads(key) for g in r.guards):
                    return False
                waiting += [a.element for a in self._accesses.operands(key)]
        self._alike |= seen
        return True

    # -- statements

    def _write(self, line: Statement, depth: int) -> int:
        top = self._scopes[-1]
        if top.guarded:
            top.lines[PER_PLACE].append(line)
            return depth
        piece = self._at(depth >> 1).piece
        assert piece is not None
        (piece.rows if depth & ROWS else piece.alike).append(line)
        return depth

    def _remember(self, key: Element, value: Known) -> None:
        top = self._scopes[-1]
        (top if top.guarded else self._scopes[value.depth >> 1]).known[key] = value

    def _remember_symbol(self, symbol: str, value: Known) -> None:
        top = self._scopes[-1]
        (top if top.guarded else self._scopes[value.depth >> 1]).symbols[symbol] = value
