"""Evaluating elements: each HLO value that a pass needs as a name defined once per scope, as far outside the loops as
it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from jax_stitch.analysis.accesses import PARTIAL, accesses
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.maps import MOVES, Guard, Index, Read
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.emit.ahead import step_ahead
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.operations import operation, rounded
from jax_stitch.graph.model import Node
from jax_stitch.ir.indices import Expr, linearize
from jax_stitch.ir.indices.expr import Var
from jax_stitch.ir.indices.variables import BATCH, PLACE, ROW, RUN, row_index
from jax_stitch.kernel.expressions import INDEX, Field, IndexValue, Op, Ref, Start, Test, Value
from jax_stitch.kernel.expressions import Element as Cell
from jax_stitch.kernel.literals import literal
from jax_stitch.kernel.statements import Allocate, Assign, Case, Choice, Define, Prefetch, Statement
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.walk import renamed
from jax_stitch.schedule.model import Part, StorageKind
from jax_stitch.schedule.runs import Stretch, decided
from jax_stitch.schedule.vectors import is_in_vectors

Element = tuple[int, Index]

UNIFORM, PER_ROW, PER_PLACE = 0, 1, 2
"""How deep in the loops a value is computed."""


class Known(Struct, frozen=True):
    """An element's value, mostly a name, and how deep it was computed."""

    value: Value
    depth: int


class Scope(Struct):
    """Statements of one nesting of loops, and the elements that they compute."""

    lines: dict[int, list[Statement]]
    known: dict[Element, Known] = field(default_factory=dict)
    symbols: dict[str, Known] = field(default_factory=dict)
    vector: int = 1
    """Neighbouring places that are taken at a time."""
    ahead: list[Prefetch] = field(default_factory=list)
    """What asks for the next place's elements."""
    guarded: bool = False


class Evaluator:
    """Makes the statements that compute elements of one part. ``uniform`` ones come before all loops; a pass's go to
    its own scope.
    """

    def __init__(self, part: Part, names: Names, buffers: Mapping[int, str], fields: Mapping[int, Ref | Field]):
        self._part = part
        self._graph = names.graph
        self._accesses = accesses(names.graph)
        self._names = names
        self._buffers = buffers
        self._cells = fields
        self._row = row_index(part.split.rows, part.split.period)
        self.uniform = Scope({UNIFORM: []})
        self.tables: dict[int, str] = {}
        self._scopes: list[Scope] = [self.uniform]
        self._deepest = UNIFORM
        self._uses: frozenset[Element] = frozenset()
        self._caches: frozenset[Element] = frozenset()
        self._stretch: Stretch | None = None
        self._provided: Mapping[Element, Ref] = {}
        self._written: set[int | Element] = set()

    def open(
        self,
        deepest: int,
        uses: frozenset[Element],
        caches: frozenset[Element],
        vector: int = 1,
        stretch: Stretch | None = None,
    ) -> Scope:
        """Open a pass whose loops go as deep as ``deepest``, of ``stretch`` over those places alone; return the scope
        whose statements the caller places.
        """
        self._stretch = stretch
        scope = Scope({PER_ROW: [], PER_PLACE: []}, vector=vector)
        self._scopes = [self.uniform, scope]
        self._deepest = deepest
        self._uses, self._caches = uses, caches
        self._provided = {}
        return scope

    def provide(self, where: Mapping[Element, Ref]) -> None:
        """Say where the open pass has elements. Each is read where it is wanted, and then cached if it is to be."""
        self._provided = where

    def _taken(self, key: Element, where: Ref) -> Known:
        node = self._graph[key[0]]
        value = self._named(node, rounded(node.tensor.dtype, where), PER_PLACE)
        if key in self._caches:
            self._cache(key, value)
        self._remember(key, value)
        return value

    def wrote(self, *nodes: int) -> None:
        """Tell that the registers of each row that have these nodes are written: what follows may read them."""
        self._written.update(nodes)

    def close(self) -> None:
        """End the pass: what follows is uniform."""
        self._scopes = [self.uniform]
        self._deepest = UNIFORM
        self._uses = self._caches = frozenset()
        self._stretch = None
        self._provided = {}

    def element(self, i: int, index: Index, *, root: bool = False) -> Known:
        """Return the value of element ``index`` of node ``i``; ``root`` asks for its computation even where it is a
        cached value.
        """
        wanted = (i, index)
        waiting = [wanted]
        while waiting:  # Not by recursion: an optimizer's global norm is a chain of thousands of additions.
            key = waiting[-1]
            asked = root and key == wanted
            if not asked and self._known(key) is not None:
                waiting.pop()
                continue
            missing = [e for e in self._needs(key, asked) if self._known(e) is None]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            value = self._make(key, asked)
            if asked:
                return value
        value_ = self._known(wanted)
        assert value_ is not None
        return value_

    def _known(self, key: Element) -> Known | None:
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        return self._taken(key, self._provided[key]) if key in self._provided else None

    def _needs(self, key: Element, asked: bool) -> list[Element]:
        """Return the elements that computing one takes, whatever the row and place."""
        i, index = key
        node = self._graph[i]
        if not asked and (key in self._uses or i in self._part.storage):
            return []
        if node.op in ("constant", "iota", "reduce", "reduce-window", "sort", "dot", PARTIAL) or not (
            i in self._part.pattern.inside or is_rematerializable(node)
        ):
            return []
        return self._operand_elements(node, index)

    def _operand_elements(self, node: Node, index: Index) -> list[Element]:
        """Return what one element reads, whatever the row and place; of data-dependent reads only where they start."""
        reads = self._reads(node, index)
        if any(r.guards for r in reads):
            return []
        starts = [(node.operands[o], at) for r in reads for _, o, at in r.starts]
        return starts + [(node.operands[r.operand], r.index) for r in reads if not r.starts]

    def _reads(self, node: Node, index: Index) -> tuple[Read, ...]:
        reads = self._accesses.reads((node.id, index))
        return reads if self._stretch is None else decided(reads, self._stretch)

    def _make(self, key: Element, asked: bool) -> Known:
        i, index = key
        node = self._graph[i]
        value = None if asked else self._cached(node, index)
        if value is None:
            inside = i in self._part.pattern.inside or is_rematerializable(node)
            value = self._compute(node, index) if inside else self._load(node, index)
            if key in self._caches:
                self._cache(key, value)
        self._remember(key, value)
        return value

    # -- cached values

    def _cached(self, node: Node, index: Index) -> Known | None:
        key = (node.id, index)
        if key in self._uses:
            return self._named(node, self._own_value(key), PER_PLACE)
        storage = self._part.storage.get(node.id)
        if storage is None:
            return None
        binding = self._part.pattern.bindings[node.id]
        position = position_in(binding, self._row, index)
        if position is None:
            return None
        if node.id in self._part.pattern.inputs:
            return self._copied(node, index, position)
        where: Value = self._cells[node.id]
        depth = PER_ROW
        if storage.kind is StorageKind.ROW:
            assert node.id in self._written, f"{node.name or node.op} is read before its row has it"
        else:
            depth = max(PER_ROW, self._depth_of(position))
            where = self._in_shared(self._cells[node.id], position)
        return self._named(node, rounded(node.tensor.dtype, where), depth)

    def _copied(self, node: Node, index: Index, position: Expr) -> Known:
        """Return an element of an input's row that was copied to shared memory, where it is as in its buffer."""
        where, top = self._cells[node.id], self._scopes[-1]
        assert isinstance(where, Ref)
        vector = "" if top.guarded else self.vector_name(node, index, top.vector)
        cell = Cell(where.name, self.index(position), where.dtype, vector)
        return self._named(node, cell, max(PER_ROW, self._depth_of(position)))

    def _in_shared(self, where: Ref | Field, position: Expr) -> Cell | Field:
        """Return an element of an array that each row has in shared memory, or a field of one."""
        if isinstance(where, Field):
            assert isinstance(where.of, Ref)
            return Field(Cell(where.of.name, self.index(position), where.of.dtype), where.field, where.dtype)
        return Cell(where.name, self.index(position), where.dtype)

    def _own_value(self, key: Element) -> Value:
        """Return what the thread has cached at its own place."""
        name = self._names.own(key)
        assert key in self._written, f"{name} is read before it is cached"
        return Ref(name, self._part.own_storage[key].type.dtype)

    def _cache(self, key: Element, value: Known) -> None:
        storage = self._part.own_storage[key]
        self._write(Assign(Ref(self._names.own(key), storage.type.dtype), value.value), PER_PLACE)
        self._written.add(key)

    # -- computing

    def _load(self, node: Node, index: Index) -> Known:
        at = linearize(index, node.tensor.dims)
        buffer, position = self._buffers[node.id], self.index(at)
        top = self._scopes[-1]
        vector = "" if top.guarded else self.vector_name(node, index, top.vector)
        step = step_ahead(self._part, at)
        if step is not None and not top.guarded:
            top.ahead.append(Prefetch(buffer, position, step))
        return self._named(node, Cell(buffer, position, node.tensor.dtype, vector), self._depth_of(at))

    def vector_name(self, node: Node, index: Index, of_places: int) -> str:
        """Return the name of the vector in which an element is read or written with its neighbours: ``of_places`` of a
        row, or those at the same place of the rows that a thread has; none where it has none.
        """
        dims, rows = node.tensor.dims, self._part.split.row_vector
        in_vectors = of_places > 1 and is_in_vectors(index, dims, of_places)
        in_vectors = in_vectors or (rows > 1 and is_in_vectors(index, dims, rows, ROW))
        return self._names.fresh(f"{node.name or node.op}_vector") if in_vectors else ""

    def _compute(self, node: Node, index: Index) -> Known:
        if node.op == "constant":
            return self._constant(node, index)
        if node.op == "iota":
            i = index[node.attributes["iota_dimension"]]
            source = IndexValue(self.index(i), "s64" if self._part.wide else "s32")
            return self._named(node, Op("convert", node.tensor.dtype, (source,)), self._depth_of(i))
        reads = self._reads(node, index)
        if any(r.guards for r in reads):
            return self._choice(node, reads)
        values = [self._read(node, r) for r in reads]
        if len(values) == 1 and node.op in (*MOVES, "dynamic-update-slice"):
            return values[0]
        value = operation(self._graph, node, [v.value for v in values])
        return self._named(node, value, self._join(v.depth for v in values))

    def _join(self, depths: Iterable[int]) -> int:
        """Return how deep a value of such values is computed."""
        return max(depths, default=UNIFORM)

    def _constant(self, node: Node, index: Index) -> Known:
        assert node.literal is not None
        dtype = node.tensor.dtype
        if node.literal.ndim == 0 or node.literal.size == 1:
            return Known(literal(node.literal.reshape(()), dtype), UNIFORM)
        at = linearize(index, node.tensor.dims)
        if at.is_const:
            return Known(literal(node.literal.reshape(-1)[at.offset], dtype), UNIFORM)
        self.tables.setdefault(node.id, self._names.of(node))
        return self._named(node, Cell(self.tables[node.id], self.index(at), dtype), self._depth_of(at))

    def _define_starts(self, node: Node, read: Read) -> None:
        for symbol, operand, at in read.starts:
            if self._symbol(symbol) is None:
                self._define_start(node, symbol, node.operands[operand], at, read)

    def _read(self, node: Node, read: Read) -> Known:
        self._define_starts(node, read)
        return self.element(node.operands[read.operand], read.index)

    def _define_start(self, node: Node, symbol: str, operand: int, at: Index, read: Read) -> None:
        """Define an index that is data: clamped as HLO has it, before it is used."""
        value = self.element(operand, at)
        terms = (*read.index, *(g.value for g in read.guards))
        variable = next(v for e in terms for v in e.variables() if v.name == symbol)
        name = self._names.fresh(f"start_{node.op}")
        self._write(Define(name, INDEX, Start(value.value, variable.high)), value.depth)
        self._remember_symbol(symbol, Known(Ref(name, INDEX), value.depth))

    def _remember_symbol(self, symbol: str, value: Known) -> None:
        self._scopes[-1].symbols[symbol] = value

    def _choice(self, node: Node, reads: tuple[Read, ...]) -> Known:
        """Return a concatenate or pad, whose index decides which operand is read."""
        name = self._names.fresh(node.name or node.op)
        for read in reads:
            self._define_starts(node, read)
        depth = self._choice_depth(reads, node)
        target = Ref(name, node.tensor.dtype)
        bodies: list[tuple[Statement, ...]] = []
        for read in reads:
            scope = Scope({UNIFORM: [], PER_ROW: [], PER_PLACE: []}, guarded=True)
            self._scopes.append(scope)
            value = self._read(node, read)
            self._scopes.pop()
            bodies.append((*scope.lines[UNIFORM], *scope.lines[PER_ROW], *scope.lines[PER_PLACE]))
            bodies[-1] += (Assign(target, value.value),)
        tests = [tuple(self._test(g) for g in read.guards) for read in reads]
        tests = [*tests[:-1], ()] if len(tests) > 1 else tests  # Where the others do not hold, the last does.
        self._write(Allocate(name, node.tensor.dtype, Space.LOCAL), depth)
        self._write(Choice(tuple(map(Case, tests, bodies))), depth)
        return Known(target, depth)

    def _choice_depth(self, reads: tuple[Read, ...], node: Node) -> int:
        """Return how deep a choice between reads is made."""
        return self._deepest

    def _test(self, guard: Guard) -> Test:
        low = guard.low if guard.value.low < guard.low else None
        high = guard.high if guard.value.high > guard.high else None
        return Test(self.index(guard.value), low, high, guard.step)

    # -- statements

    def _named(self, node: Node, value: Value, depth: int) -> Known:
        name, dtype = self._names.fresh(node.name or node.op), node.tensor.dtype
        depth = self._write(Define(name, dtype, value), depth)
        return Known(Ref(name, dtype), depth)

    def _write(self, statement: Statement, depth: int) -> int:
        """Add a statement at ``depth``, or the nearest one that is open; inside a condition nothing moves out."""
        top = self._scopes[-1]
        depth = min(depth, self._deepest)
        if top.guarded:
            top.lines[PER_PLACE].append(statement)
            return max(depth, PER_ROW)
        if depth == UNIFORM:
            self.uniform.lines[UNIFORM].append(statement)
        else:
            top.lines[depth].append(statement)
        return depth

    def _remember(self, key: Element, value: Known) -> None:
        top = self._scopes[-1]
        # What one stretch finds the same everywhere, another may not.
        if not top.guarded and value.depth == UNIFORM and self._stretch is None:
            self.uniform.known[key] = value
        else:
            top.known[key] = value

    def _symbol(self, name: str) -> Known | None:
        for scope in reversed(self._scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return None

    def _depth_of(self, e: Expr) -> int:
        depth = UNIFORM
        for v in e.variables():
            if v.name in (ROW, BATCH):
                depth = max(depth, PER_ROW)
            elif v.name in (PLACE, RUN):
                depth = PER_PLACE
            else:
                symbol = self._symbol(v.name)
                depth = max(depth, symbol.depth if symbol else PER_PLACE)
        return depth

    def index(self, e: Expr) -> Expr:
        """Return an index in which what stands for data has its value's name; its terms keep their order."""
        if all(self._symbol(v.name) is None for v in e.variables()):
            return e
        return renamed(e, self._variable)

    def _variable(self, v: Var) -> Var:
        symbol = self._symbol(v.name)
        if symbol is None:
            return v
        assert isinstance(symbol.value, Ref)
        return Var(symbol.value.name, v.low, v.high)
