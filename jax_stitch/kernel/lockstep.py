"""The threads of a part's blocks side by side: names, memory and expressions as arrays over [blocks, rows, lanes]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_stitch.ir.indices.expr import Div, Expr, Mod, Var
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel.arithmetic import as_held, as_stored, compute, rounded
from jax_stitch.kernel.literals import computed, number, numpy_type
from jax_stitch.kernel.model import Combiner, Part

Array = np.ndarray
Held = tuple[Array, ...]
"""A value: an array for each of its fields, most values have one."""


class KernelFault(Exception):
    """What a kernel must not do: reach past the end of a buffer, read what nobody has written."""


@dataclass(slots=True)
class Cells:
    """What a declaration makes. ``axes`` says what its array's last axis counts: lanes, nothing (a value of each row),
    places, or elements of the block's.
    """

    axes: str
    fields: list[Array]


class Threads:
    """The state of the threads, and what expressions are worth to them."""

    def __init__(self, part: Part, buffers: Mapping[str, Array], blocks: int):
        self.part, self.blocks = part, blocks
        self.combiners: dict[str, Combiner] = {c.name: c for c in part.combiners}
        self.buffers = dict(buffers)
        self.writes = {p.name: np.zeros(p.size, np.int32) for p in part.parameters if p.written}
        self.tables = {t.name: np.array([number(v) for v in t.values]) for t in part.tables}
        self.cells: dict[str, Cells] = {}
        self.locals: dict[str, Held] = {}
        self.indices: dict[str, Array] = {"block": np.arange(blocks)[:, None, None]}
        self.mask: Array = np.ones((blocks, 1, 1), bool)
        self.at_places = False
        self.place: Array = np.zeros((1, 1, 1), np.int64)
        """Where in each row the threads are, in a pass."""

    @contextmanager
    def only(self, mask: Array) -> Iterator[None]:
        """Restrict what is done inside to the threads of ``mask``."""
        before, self.mask = self.mask, self.mask & mask
        yield
        self.mask = before

    # -- types and cells

    def types(self, dtype: str) -> list[np.dtype]:
        """Return the NumPy types of the fields of a value."""
        if dtype == ex.INDEX:
            return [np.dtype(np.int64)]
        made = self.combiners.get(dtype)
        return [numpy_type(t) for t in (made.dtypes if made else (dtype,))]

    def declare(self, name: str, dtype: str, axes: str, shape: tuple[int, ...], first: Held | None = None) -> None:
        """Declare cells that hold nothing yet, or ``first``."""
        fields = [np.full(shape, np.nan if t.kind == "f" else 0, t) for t in self.types(dtype)]
        for k, value in enumerate(first or ()):
            fields[k] = np.broadcast_to(value, shape).astype(fields[k].dtype)
        self.cells[name] = Cells(axes, fields)

    # -- indices

    def index(self, e: Expr) -> Array:
        """Return the values of an index."""
        total = np.asarray(e.offset, np.int64)
        for atom, c in e.terms:
            total = total + c * self._atom(atom)
        return total

    def _atom(self, atom: Any) -> Array:
        if isinstance(atom, Var):
            if atom.name in self.indices:
                return self.indices[atom.name]
            return self.read(atom.name)[0].astype(np.int64)
        inner = self.index(atom.of)
        if isinstance(atom, Div):
            return inner // atom.by
        return inner % atom.by if isinstance(atom, Mod) else inner

    def holds(self, tests: ex.Tests) -> Array:
        """Return where all tests hold."""
        holding = np.ones((1, 1, 1), bool)
        for test in tests:
            value = self.index(test.value)
            holding = holding & (value >= test.low if test.low is not None else True)
            holding = holding & (value <= test.high if test.high is not None else True)
            holding = holding & (value % test.step == 0)
        return holding

    # -- reading and writing

    def read(self, name: str) -> Held:
        """Return the value that a name stands for."""
        if name in self.locals:
            return self.locals[name]
        cells = self.cells[name]
        if cells.axes == "places":
            at = np.minimum(self.place, cells.fields[0].shape[2] - 1)
            return tuple(f[self._block(), self._row(f), at] for f in cells.fields)
        lanes = slice(0, 1) if cells.axes == "lanes" and self._is_row() else slice(None)
        return tuple(f[:, :, lanes] for f in cells.fields)

    def _is_row(self) -> bool:
        """Return whether one thread of each row stands for all."""
        return not self.at_places

    def _block(self) -> Array:
        return np.arange(self.blocks)[:, None, None]

    @staticmethod
    def _row(cells: Array) -> Array:
        return np.arange(cells.shape[1])[None, :, None]

    def write(self, name: str, value: Held) -> None:
        """Write what a name stands for, where threads are active."""
        if name in self.locals:
            old = self.locals[name]
            self.locals[name] = tuple(np.where(self.mask, v, o) for v, o in zip(value, old, strict=True))
            return
        cells = self.cells[name]
        for field, v in zip(cells.fields, value, strict=True):
            if cells.axes == "places":
                shape = np.broadcast_shapes(
                    self.mask.shape, v.shape, self.place.shape, (self.blocks, field.shape[1], 1)
                )
                mask = np.broadcast_to(self.mask & (self.place < field.shape[2]), shape)
                where = [np.broadcast_to(i, shape)[mask] for i in (self._block(), self._row(field), self.place)]
                field[tuple(where)] = np.broadcast_to(v, shape)[mask]
            else:
                part = field[:, :, :1] if cells.axes == "lanes" and self._is_row() else field
                part[...] = np.where(self.mask, v, part)

    def element(self, e: ex.Element) -> Held:
        """Return an element of a buffer, a table or an array."""
        at = self.index(e.at)
        if e.array in self.cells:
            cells = self.cells[e.array]
            at = self._inside(e, at, cells.fields[0].shape[-1])
            if cells.axes == "block":
                return tuple(f[self._block(), at] for f in cells.fields)
            return tuple(f[self._block(), self._row(f), at] for f in cells.fields)
        if e.array in self.tables:
            return (as_held(self.tables[e.array][self._inside(e, at, len(self.tables[e.array]))], e.dtype),)
        buffer = self.buffers[e.array]
        return (as_held(buffer[self._inside(e, at, len(buffer))], e.dtype),)

    def _inside(self, e: ex.Element, at: Array, size: int) -> Array:
        wrong = self.mask & ((at < 0) | (at >= size))
        if np.any(wrong):
            reached = np.broadcast_to(at, wrong.shape)[wrong][0]
            raise KernelFault(f"{e.array}[{e.at}] reaches element {reached} of {size}")
        return np.clip(at, 0, max(0, size - 1))

    def store(self, e: ex.Element, value: Held) -> None:
        """Write an element where threads are active."""
        at = self.index(e.at)
        if e.array in self.cells:
            cells = self.cells[e.array]
            at = self._inside(e, at, cells.fields[0].shape[-1])
            of_block = cells.axes == "block"
            places = (self._block(), at) if of_block else (self._block(), self._row(cells.fields[0]), at)
            shape = np.broadcast_shapes(self.mask.shape, *(i.shape for i in (*value, *places)))
            mask = np.broadcast_to(self.mask, shape)
            where = tuple(np.broadcast_to(i, shape)[mask] for i in places)
            for field, v in zip(cells.fields, value, strict=True):
                field[where] = np.broadcast_to(v, shape)[mask]
            return
        buffer = self.buffers[e.array]
        at = self._inside(e, at, len(buffer))
        shape = np.broadcast_shapes(self.mask.shape, at.shape, value[0].shape)
        mask = np.broadcast_to(self.mask, shape)
        where = np.broadcast_to(at, shape)[mask]
        buffer[where] = as_stored(np.broadcast_to(value[0], shape)[mask], e.dtype)
        np.add.at(self.writes[e.array], where, 1)

    # -- expressions

    def value(self, value: ex.Value) -> Held:
        """Return the value of an expression in each thread."""
        match value:
            case ex.Literal():
                return (np.full((1, 1, 1), number(value)),)
            case ex.Ref(name):
                return self.read(name)
            case ex.Element():
                return self.element(value)
            case ex.Field(of, k):
                return (self.value(of)[k],)
            case ex.Op(_, _, operands):
                arrays = np.broadcast_arrays(*(self.value(o)[0] for o in operands))
                return (compute(value, [np.ascontiguousarray(a) for a in arrays]),)
            case ex.Combine(combiner, left, right):
                return self.combined(combiner, self.value(left), self.value(right))
            case ex.Make(_, operands):
                return tuple(self.value(o)[0] for o in operands)
            case _:
                return (self._less_usual(value),)

    def _less_usual(self, value: ex.Value) -> Array:
        match value:
            case ex.IndexValue(at, dtype):
                return self.index(at).astype(numpy_type(dtype))
            case ex.Start(of, high):
                held = self.value(of)[0]
                top = np.minimum(held, np.array(high).astype(held.dtype)) if high <= np.iinfo(held.dtype).max else held
                return np.maximum(top, 0).astype(np.int64)
            case ex.Counter(variable, start, by, dtype):
                return (start + self.indices[variable] * by).astype(numpy_type(dtype))
            case ex.Products(dtype, pairs):
                total = np.zeros((1, 1, 1), numpy_type(dtype))
                for a, b in pairs:
                    total = total + self.value(a)[0] * self.value(b)[0]
                return rounded(total.astype(numpy_type(dtype)), computed(dtype))
            case ex.Fused(dtype, left, right, addend):
                x, y, z = (self.value(v)[0].astype(np.float64) for v in (left, right, addend))
                return (x * y + z).astype(numpy_type(dtype))
            case ex.Pick(at, low, choices):
                where = self.index(at) - low
                return np.choose(where, np.broadcast_arrays(*(self.value(c)[0] for c in choices)), mode="clip")
        raise AssertionError(f"{value} has no meaning")

    def combined(self, name: str, left: Held, right: Held) -> Held:
        """Return a combiner's value of two."""
        made = self.combiners[name]
        function = _Function({"a": left, "b": right})
        for d in made.body:
            function.locals[d.name] = function.value(d.value)
        with np.errstate(all="ignore"):
            types = self.types(name)
            results = (function.value(r)[0].astype(t) for r, t in zip(made.results, types, strict=True))
            return tuple(results)

    def over_lanes(self, combiner: str, values: Held) -> Held:
        """Return what the last axis holds, combined as a balanced tree."""
        while (left := values[0].shape[2]) > 1:
            half = left // 2
            rest = tuple(v[:, :, 2 * half :] for v in values)
            pairs = self.combined(combiner, *(tuple(v[:, :, k : 2 * half : 2] for v in values) for k in (0, 1)))
            values = tuple(np.concatenate([p, r], 2) for p, r in zip(pairs, rest, strict=True))
        return values


class _Function(Threads):
    """The names inside a combiner or a comparator."""

    def __init__(self, names: dict[str, Held]):
        self.locals = names
        self.cells, self.indices = {}, {}


def precedes(order: Any, a: Held, b: Held) -> Array:
    """Return whether ``a`` comes before ``b``, as a comparator has it, and what is equal as it stands."""

    def of(left: Held, right: Held) -> Array:
        function = _Function({"a": left, "b": right})
        for d in order.body:
            function.locals[d.name] = function.value(d.value)
        return function.value(order.result)[0]

    first = of(a, b)
    return first | (~of(b, a) & (a[-1] < b[-1])) if order.stable else first
