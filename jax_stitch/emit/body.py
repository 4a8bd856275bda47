"""Evaluating elements: each HLO value that a stage needs as a C++ constant, computed once per scope and as far outside
the loops as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jax_stitch.analysis import Expr, linearize, reads
from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.expr import Div, Var, Within
from jax_stitch.analysis.locality import BATCH, PARTIAL, PLACE, ROW, RUN, row_index
from jax_stitch.analysis.maps import MOVES, Guard, Index, Read
from jax_stitch.analysis.support import is_free
from jax_stitch.emit import scalar
from jax_stitch.emit.ahead import step_ahead
from jax_stitch.emit.names import Names
from jax_stitch.graph.model import Node
from jax_stitch.schedule.model import Order, Part, Place, Storage
from jax_stitch.schedule.runs import Segment, decided
from jax_stitch.schedule.vectors import is_in_vectors

Element = tuple[int, Index]

UNIFORM, PER_ROW, PER_PLACE = 0, 1, 2
"""How deep in the loops a value is computed."""


@dataclass(frozen=True, slots=True)
class Value:
    """The C++ name (or literal) of an element and how deep it was computed."""

    text: str
    level: int


@dataclass(slots=True)
class Scope:
    """Lines of one nesting level and the elements they compute."""

    lines: dict[int, list[str]]
    known: dict[Element, Value] = field(default_factory=dict)
    symbols: dict[str, Value] = field(default_factory=dict)
    vector: int = 1
    """Neighbouring places that are taken at a time; what is read and written so stands around their loop."""
    loads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    """What asks for the next place's elements."""
    guarded: bool = False


class Evaluator:
    """Writes the computation of elements of one part. ``uniform`` lines come before all loops; a stage's lines go to
    its own scope.
    """

    def __init__(self, part: Part, names: Names, buffers: Mapping[int, str], fields: Mapping[int, str]):
        self._part = part
        self._graph = names.graph
        self._names = names
        self._buffers = buffers
        self._stored_text = fields
        self._row = row_index(part.split.rows, part.split.period)
        self.uniform = Scope({UNIFORM: []})
        self.tables: dict[int, str] = {}
        self._scopes: list[Scope] = [self.uniform]
        self._deepest = UNIFORM
        self._uses: frozenset[Element] = frozenset()
        self._keeps: frozenset[Element] = frozenset()
        self._segment: Segment | None = None
        self._written: set[int | Element] = set()

    def stage(
        self,
        deepest: int,
        uses: frozenset[Element],
        keeps: frozenset[Element],
        vector: int = 1,
        segment: Segment | None = None,
    ) -> Scope:
        """Opens a stage whose loops go as deep as ``deepest``, of ``segment`` over those places alone; returns the
        scope whose lines the caller places.
        """
        self._segment = segment
        scope = Scope({PER_ROW: [], PER_PLACE: []}, vector=vector)
        self._scopes = [self.uniform, scope]
        self._deepest = deepest
        self._uses, self._keeps = uses, keeps
        return scope

    def provide(self, i: int, index: Index, text: str) -> None:
        """Tells the open stage where it has an element, which is kept if it is to be."""
        node, key = self._graph[i], (i, index)
        value = self._named(node, scalar.rounded(node.tensor.dtype, text), PER_PLACE)
        if key in self._keeps:
            self._keep(key, value)
        self._remember(key, value)

    def wrote(self, *nodes: int) -> None:
        """Tells that the registers of each row that have these nodes are written: what follows may read them."""
        self._written.update(nodes)

    def close(self) -> None:
        """Ends the stage: what follows is uniform."""
        self._scopes = [self.uniform]
        self._deepest = UNIFORM
        self._uses = self._keeps = frozenset()
        self._segment = None

    def element(self, i: int, index: Index, *, root: bool = False) -> Value:
        """The value of element ``index`` of node ``i``; ``root`` asks for its computation even where it is a stored
        value.
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
        found = self._known(wanted)
        assert found is not None
        return found

    def _known(self, key: Element) -> Value | None:
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def _needs(self, key: Element, asked: bool) -> list[Element]:
        """The elements that computing one takes, whatever the row and place."""
        i, index = key
        node = self._graph[i]
        if not asked and (key in self._uses or i in self._part.storage):
            return []
        if node.op in ("constant", "iota", "reduce", "reduce-window", "sort", "dot", PARTIAL) or not (
            i in self._part.pattern.inside or is_free(node)
        ):
            return []
        return self._operand_elements(node, index)

    def _operand_elements(self, node: Node, index: Index) -> list[Element]:
        """What one element reads, whatever the row and place; of data-dependent reads only where they start."""
        found = self._reads(node, index)
        if any(r.guards for r in found):
            return []
        starts = [(node.operands[o], at) for r in found for _, o, at in r.starts]
        return starts + [(node.operands[r.operand], r.index) for r in found if not r.starts]

    def _reads(self, node: Node, index: Index) -> tuple[Read, ...]:
        found = reads(self._graph, node, index)
        return found if self._segment is None else decided(found, self._segment)

    def _make(self, key: Element, asked: bool) -> Value:
        i, index = key
        node = self._graph[i]
        value = None if asked else self._kept_or_stored(node, index)
        if value is None:
            inside = i in self._part.pattern.inside or is_free(node)
            value = self._compute(node, index) if inside else self._load(node, index)
            if key in self._keeps:
                self._keep(key, value)
        self._remember(key, value)
        return value

    # -- stored values

    def _kept_or_stored(self, node: Node, index: Index) -> Value | None:
        key = (node.id, index)
        if key in self._uses:
            return self._named(node, self._kept(key), PER_PLACE)
        storage = self._part.storage.get(node.id)
        if storage is None:
            return None
        binding = self._part.pattern.bindings[node.id]
        position = position_in(binding, self._row, index)
        if position is None:
            return None
        text = self._stored_text[node.id]
        if storage.place is Place.CARRIED:
            level, text = PER_ROW, f"ST_R({text}_{position.offset})"
        elif storage.place is Place.ROW:
            assert node.id in self._written, f"{node.name or node.op} is read before its row has it"
            level = PER_ROW
            text = f"ST_R({text})" if "." not in text else f"ST_R({text.split('.')[0]}).{text.split('.')[1]}"
        else:
            level = max(PER_ROW, self._level(position))
            text = self._in_shared(text, storage, position)
        return self._named(node, scalar.rounded(node.tensor.dtype, text), level)

    def _in_shared(self, name: str, storage: Storage, position: Expr) -> str:
        at = self.render(position)
        base, _, member = name.partition(".")
        place = f"r_ * {storage.size} + {at}" if self._part.split.order is Order.LANES else f"({at}) * TR_ + r_"
        return f"{base}[{place}]" + (f".{member}" if member else "")

    def _kept(self, key: Element) -> str:
        """What the thread has kept: in registers as it is computed, in shared memory as in a buffer."""
        storage, name = self._part.kept[key], self._names.kept(key)
        assert key in self._written, f"{name} is read before it is kept"
        if storage.place is Place.REGISTERS:
            return f"ST_K({name})"
        return scalar.load(storage.type.dtype, f"{name}[p_]")

    def _keep(self, key: Element, value: Value) -> None:
        storage, name = self._part.kept[key], self._names.kept(key)
        if storage.place is Place.REGISTERS:
            line = f"ST_K({name}) = {value.text};"
        else:
            line = f"{name}[p_] = {scalar.store(storage.type.dtype, value.text)};"
        self._write(line, PER_PLACE)
        self._written.add(key)

    # -- computing

    def _load(self, node: Node, index: Index) -> Value:
        at = linearize(index, node.tensor.dims)
        buffer, place = self._buffers[node.id], self.render(at)
        element, top = f"{buffer}[{place}]", self._scopes[-1]
        if top.vector > 1 and is_in_vectors(index, node.tensor.dims, top.vector):
            name = self._names.fresh(f"{node.name or node.op}_vector")
            ctype = scalar.STORAGE[node.tensor.dtype]
            top.loads.append(f"ST_LOAD_VECTOR({ctype}, {name}, {buffer}, {place}, {top.vector})")
            element = f"ST_OF_VECTOR({name}, {element})"
        step = step_ahead(self._part, at)
        if step is not None and not top.guarded:
            top.ahead.append(f"ST_FETCH_AHEAD({buffer}, {place}, {step})")
        text = scalar.load(node.tensor.dtype, element)
        return self._named(node, text, self._level(at))

    def _compute(self, node: Node, index: Index) -> Value:
        if node.op == "constant":
            return self._constant(node, index)
        if node.op == "iota":
            i = index[node.attributes["iota_dimension"]]
            source = "s64" if self._part.wide else "s32"
            text = scalar._convert(node.tensor.dtype, f"index({self.render(i)})", source)
            return self._named(node, text, self._level(i))
        found = self._reads(node, index)
        if any(r.guards for r in found):
            return self._choice(node, found)
        values = [self._read(node, r) for r in found]
        if len(values) == 1 and node.op in (*MOVES, "dynamic-update-slice"):
            return values[0]
        dtypes = [self._graph[o].tensor.dtype for o in node.operands]
        text = scalar.expression(node, [v.text for v in values], dtypes)
        return self._named(node, text, self._join(v.level for v in values))

    def _join(self, levels: Iterable[int]) -> int:
        """How deep a value of such values is computed."""
        return max(levels, default=UNIFORM)

    def _constant(self, node: Node, index: Index) -> Value:
        assert node.literal is not None
        if node.literal.ndim == 0 or node.literal.size == 1:
            return Value(scalar.literal(node.literal.reshape(()), node.tensor.dtype), UNIFORM)
        at = linearize(index, node.tensor.dims)
        if at.is_const:
            return Value(scalar.literal(node.literal.reshape(-1)[at.offset], node.tensor.dtype), UNIFORM)
        self.tables.setdefault(node.id, self._names.of(node))
        return self._named(node, f"{self.tables[node.id]}[{self.render(at)}]", self._level(at))

    def _define_starts(self, node: Node, read: Read) -> None:
        for symbol, operand, at in read.starts:
            if self._symbol(symbol) is None:
                self._define_start(node, symbol, node.operands[operand], at, read)

    def _read(self, node: Node, read: Read) -> Value:
        self._define_starts(node, read)
        return self.element(node.operands[read.operand], read.index)

    def _define_start(self, node: Node, symbol: str, operand: int, at: Index, read: Read) -> None:
        """An index that is data: clamped as HLO has it, before it is used."""
        value = self.element(operand, at)
        terms = (*read.index, *(g.value for g in read.guards))
        variable = next(v for e in terms for v in e.variables() if v.name == symbol)
        dtype = self._graph[operand].tensor.dtype
        wide = f"uint64_t({value.text})" if dtype[0] == "u" else f"int64_t({value.text})"
        kind = "uint64_t" if dtype[0] == "u" else "int64_t"
        name = self._names.fresh(f"start_{node.op}")
        self._write(f"const index {name} = index(st::clamp<{kind}>(0, {wide}, {variable.high}));", value.level)
        self._remember_symbol(symbol, Value(name, value.level))

    def _remember_symbol(self, symbol: str, value: Value) -> None:
        self._scopes[-1].symbols[symbol] = value

    def _choice(self, node: Node, found: tuple[Read, ...]) -> Value:
        """Concatenate and pad: which operand is read depends on the index."""
        name = self._names.fresh(node.name or node.op)
        for read in found:
            self._define_starts(node, read)
        level = self._choice_level(found, node)
        ctype = scalar.computed_type(node.tensor.dtype)
        lines = [f"{ctype} {name};"]
        for k, read in enumerate(found):
            condition = " && ".join(self._condition(g) for g in read.guards)
            last = k == len(found) - 1
            head = "else {" if k and last else (f"else if ({condition}) {{" if k else f"if ({condition}) {{")
            scope = Scope({UNIFORM: [], PER_ROW: [], PER_PLACE: []}, guarded=True)
            self._scopes.append(scope)
            value = self._read(node, read)
            self._scopes.pop()
            inner = [*scope.lines[UNIFORM], *scope.lines[PER_ROW], *scope.lines[PER_PLACE], f"{name} = {value.text};"]
            lines += [head, *("  " + line for line in inner), "}"]
        for line in lines:
            self._write(line, level)
        return Value(name, level)

    def _choice_level(self, found: tuple[Read, ...], node: Node) -> int:
        """How deep a choice between reads is made."""
        return self._deepest

    def _condition(self, guard: Guard) -> str:
        text = self.render(guard.value)
        tests = []
        if guard.value.low < guard.low:
            tests.append(f"{text} >= {guard.low}")
        if guard.value.high > guard.high:
            tests.append(f"{text} <= {guard.high}")
        if guard.step > 1:
            tests.append(f"({text}) % {guard.step} == 0")
        return " && ".join(tests) or "true"

    # -- lines

    def _named(self, node: Node, text: str, level: int) -> Value:
        name = self._names.fresh(node.name or node.op)
        level = self._write(f"const {scalar.computed_type(node.tensor.dtype)} {name} = {text};", level)
        return Value(name, level)

    def _write(self, line: str, level: int) -> int:
        """Adds a line at ``level``, or the nearest one that is open; inside a condition nothing moves out."""
        top = self._scopes[-1]
        level = min(level, self._deepest)
        if top.guarded:
            top.lines[PER_PLACE].append(line)
            return max(level, PER_ROW)
        if level == UNIFORM:
            self.uniform.lines[UNIFORM].append(line)
        else:
            top.lines[level].append(line)
        return level

    def _remember(self, key: Element, value: Value) -> None:
        top = self._scopes[-1]
        # What one segment finds the same everywhere, another may not.
        if not top.guarded and value.level == UNIFORM and self._segment is None:
            self.uniform.known[key] = value
        else:
            top.known[key] = value

    def _symbol(self, name: str) -> Value | None:
        for scope in reversed(self._scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return None

    def _level(self, e: Expr) -> int:
        level = UNIFORM
        for v in e.variables():
            if v.name in (ROW, BATCH):
                level = max(level, PER_ROW)
            elif v.name in (PLACE, RUN):
                level = PER_PLACE
            else:
                symbol = self._symbol(v.name)
                level = max(level, symbol.level if symbol else PER_PLACE)
        return level

    def render(self, e: Expr) -> str:
        """An index expression as C++."""
        text = ""
        for atom, c in e.terms:
            if isinstance(atom, Var):
                symbol = self._symbol(atom.name)
                piece = symbol.text if symbol else atom.name
            elif isinstance(atom, Within):
                piece = f"({self.render(atom.of)})"
            else:
                piece = f"({self.render(atom.of)}) {'/' if isinstance(atom, Div) else '%'} {atom.by}"
                piece = f"({piece})"
            piece = piece if abs(c) == 1 else f"{piece} * {abs(c)}"
            text += (f" {'-' if c < 0 else '+'} " if text else ("-" if c < 0 else "")) + piece
        if e.offset or not text:
            text += f" {'-' if e.offset < 0 else '+'} {abs(e.offset)}" if text else str(e.offset)
        return text
