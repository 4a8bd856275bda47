"""A kernel run in NumPy, slowly: the definition of what the kernel language means.

All threads of all blocks go through a part's statements side by side, each statement for all of them before the next;
barriers are therefore nothing to do, and whether they stand where they must is for ``verify`` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.ir.indices.variables import BATCH, BLOCK, ROW
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.context import bound_by
from jax_stitch.kernel.expressions import Ref
from jax_stitch.kernel.intrinsics import TABLE
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.lockstep import Array, KernelFault, Threads
from jax_stitch.kernel.model import Kernel, RowShape
from jax_stitch.kernel.threads import Space, Who
from jax_stitch.kernel.walk import nodes


def interpret(kernel: Kernel, inputs: Sequence[Array]) -> list[Array]:
    """Return the kernel's outputs for ``inputs``.

    Raises:
        KernelFault: it reaches past a buffer's end, or does not write each element of an output once.
    """
    memory = {b.name: np.asarray(a).reshape(-1) for b, a in zip(kernel.inputs, inputs, strict=True)}
    for b in (*kernel.outputs, *kernel.scratch):
        memory[b.name] = np.zeros(prod(b.dims), ELEMENT_TYPES[b.dtype].numpy)
        if b.over:
            memory[b.over] = memory[b.name] = memory[b.over].copy()
    written = {b.name: np.zeros(prod(b.dims), np.int32) for b in kernel.outputs}
    for phase in kernel.phases:
        for call in phase.calls:
            part = kernel.parts[call.part]
            names = dict(zip((p.name for p in part.parameters), call.arguments, strict=True))
            threads = Machine(part, {name: memory[outer] for name, outer in names.items()}, call.last - call.first)
            threads.run()
            for name, counts in threads.writes.items():
                written[names[name]] += counts
    for name, counts in written.items():
        if np.any(counts != 1):
            at = int(np.argmax(counts != 1))
            raise KernelFault(f"element {at} of {name} is written {counts[at]} times")
    return [memory[b.name].reshape(b.dims) for b in kernel.outputs]


class Machine(Threads):
    """Runs the statements of a part."""

    _rows = _lanes = 1
    _active: Array = np.ones((1, 1, 1), bool)
    """The rows that there are."""
    _going: Array = np.ones((1, 1, 1), bool)
    """Those that have not left the loop that they are in."""

    def run(self) -> None:
        """Run the part, for all its blocks."""
        part, shape = self.part, self.part.shape
        if not isinstance(shape, RowShape):
            self.indices[ROW] = self.indices[BLOCK]
            self.body(part.before)
            self.body(part.body)
            return
        self._rows, self._lanes = shape.rows_per_block, shape.lanes
        self._active = np.ones((self.blocks, self._rows, 1), bool)
        self.body(part.before)
        groups = ceil(shape.period / self._rows)
        for trip in range(shape.sequence):
            group = self.indices[BLOCK] * shape.sequence + trip
            first = group % groups * self._rows
            batch = group // groups
            row = first + np.arange(self._rows)[None, :, None]
            self._active = (batch < shape.rows // shape.period) & (row < shape.period)
            self.indices |= {ROW: row, BATCH: batch}
            self.body(part.body)
        self._active = np.ones((self.blocks, self._rows, 1), bool)
        self.body(part.after)

    def body(self, statements: st.Body) -> bool:
        """Run statements in order, and return whether the loop around them goes on."""
        return all(self._do(s) for s in statements)

    def _do(self, s: st.Statement) -> bool:
        if isinstance(s, st.LeaveUnless):
            self._going = self._going & self.value(s.condition)[0]
            return bool(np.any(self._going & self._active if s.any_row else self._going))
        action: Callable[[Any], None] = getattr(self, f"_do_{type(s).__name__.lower()}")
        action(s)
        return True

    # -- names

    def _do_define(self, s: st.Define) -> None:
        self.locals[s.name] = self.value(s.value)

    def _do_allocate(self, s: st.Allocate) -> None:
        first = None if s.first is None else self.value(s.first)
        match s.space:
            case Space.LOCAL:
                self.locals[s.name] = tuple(np.zeros((1, 1, 1), t) for t in self.types(s.dtype))
            case Space.LANE:
                self.declare(s.name, s.dtype, "lanes", (self.blocks, self._rows, self._lanes), first)
            case Space.ROW:
                self.declare(s.name, s.dtype, "", (self.blocks, self._rows, 1), first)
            case Space.TEAM:
                for name in (s.name, f"next_{s.name}")[: s.copies]:
                    self.declare(name, s.dtype, "block", (self.blocks, s.size))
            case _:
                self.declare(s.name, s.dtype, "places", (self.blocks, self._rows, s.size))

    def _do_assign(self, s: st.Assign) -> None:
        first_row = self.indices[ROW] == 0 if s.who is Who.FIRST_ROW else np.ones((1, 1, 1), bool)
        with self.only(first_row):
            value = self.value(s.value)
            if isinstance(s.target, Ref):
                self.write(s.target.name, value)
            else:
                self.store(s.target, value)

    # -- control

    def _do_choice(self, s: st.Choice) -> None:
        left = np.ones((1, 1, 1), bool)
        for case in s.cases:
            here = left & self.holds(case.tests)
            with self.only(here):
                self.body(case.body)
            left = left & ~here

    def _do_scope(self, s: st.Scope) -> None:
        self.body(s.body)

    def _do_barrier(self, s: st.Barrier) -> None:
        pass

    def _do_for(self, s: st.For) -> None:
        outer, at = self._going, int(self.index(s.start))
        self.indices[s.variable] = np.asarray(at)
        while all(at < int(self.index(stop)) for stop in s.stops):
            if not self.body(s.body):
                break
            at += s.by
            self.indices[s.variable] = np.asarray(at)
        self._going = outer

    # -- rows and places

    def _do_rows(self, s: st.Rows) -> None:
        row = self.indices[ROW]
        told = True if s.high is None else (row >= s.low) & (row < s.high)
        with self.only(self._active & self._going & told):
            self.body(s.body)

    def _do_pass(self, s: st.Pass) -> None:
        rows = self._active & (np.arange(self._rows)[None, :, None] == 0 if s.first_row_only else True)
        with self.only(rows):
            self.body(s.row)
            lanes = self._lanes if s.joins or self._accumulates(s) else s.size
            for trip in range(ceil(s.size / (lanes * s.vector)) * s.vector):
                vector, of_it = divmod(trip, s.vector)
                at = (vector * lanes + np.arange(lanes)[None, None, :]) * s.vector + of_it
                if lanes == s.size:
                    at = np.arange(lanes)[None, None, :]
                self._at_places(s, at)
                for k, step in enumerate(s.joins.steps if s.joins else ()):
                    assert s.joins is not None
                    if (trip + 1) % s.joins.block ** (k + 1) == 0:
                        self.body(step.body)
                if lanes == s.size:
                    break
            self._leave_places(s)

    def _at_places(self, s: st.Pass, at: Array) -> None:
        """Run a pass at one place of each lane."""
        self.place, inner = at, at % s.period
        self.indices |= {s.place.variable: inner, s.run.variable: at // s.period}
        self.at_places = True
        for stretch in s.stretches:
            with self.only((at < s.size) & (inner >= stretch.low) & (inner < stretch.high)):
                self.body(stretch.body)

    def _leave_places(self, s: Any) -> None:
        for name in bound_by(s):
            del self.indices[name]
        self.at_places = False

    def _accumulates(self, s: st.Pass | st.ScanPass) -> bool:
        targets = (n.target for n in nodes(s) if isinstance(n, st.Assign) and isinstance(n.target, Ref))
        return any(r.name in self.cells and self.cells[r.name].axes == "lanes" for r in targets)

    # -- what threads do together

    def _do_apply(self, s: st.Apply) -> None:
        TABLE[s.intrinsic].meaning(self, s)

    def _do_scanpass(self, s: st.ScanPass) -> None:
        lanes = self._lanes if self._accumulates(s) else s.size
        carried: dict[str, Array] = {}
        for scan in s.scans:
            dtype = computed(self.combiners[scan.combiner].dtypes[0])
            self.declare(scan.name, dtype, "lanes", (self.blocks, self._rows, lanes))
            carried[scan.name] = np.broadcast_to(self.value(scan.first)[0], (self.blocks, self._rows, 1))
        combiners = {scan.name: scan.combiner for scan in s.scans}
        for first in range(0, s.size, lanes):
            at = first + np.arange(lanes)[None, None, :]
            self.place = np.maximum(s.size - 1 - at, 0) if s.backward else at
            self.indices[s.place.variable] = self.place
            self.at_places = True
            for step in s.steps:
                with self.only(self._active & (at < s.size)):
                    self.body(step.body)
                for name in step.scans:
                    carried[name] = self._scanned(combiners[name], name, carried[name])
        self._leave_places(s)

    def _scanned(self, combiner: str, name: str, carried: Array) -> Array:
        field = self.cells[name].fields[0]
        for k in range(field.shape[2]):
            carried = self.combined(combiner, (carried,), (field[:, :, k : k + 1],))[0]
            field[:, :, k : k + 1] = carried
        return carried

    # -- loops in teams

    def _do_swap(self, s: st.Swap) -> None:
        following = f"next_{s.name}"
        self.cells[s.name], self.cells[following] = self.cells[following], self.cells[s.name]

    def _do_add(self, s: st.Add) -> None:
        inside = np.ones((1, 1, 1), bool)
        for start in s.starts:
            held = self.value(start.of)[0].astype(np.int64)
            inside = inside & (held >= 0) & (held <= start.high)
            self.indices[start.name] = np.clip(held, 0, start.high)
        with self.only(inside):
            at, value = self.index(s.target.at), self.value(s.value)[0]
            shape = np.broadcast_shapes(self.mask.shape, at.shape, value.shape)
            mask = np.broadcast_to(self.mask, shape)
            where = [np.broadcast_to(i, shape)[mask] for i in (self._block(), at)]
            np.add.at(self.cells[s.target.array].fields[0], tuple(where), np.broadcast_to(value, shape)[mask])

    def _do_items(self, s: st.Items) -> None:
        self._enter_items(s)
        for square in s.squares:
            self.locals[square.name] = self.value(square.element)
        self.body(s.body)
        self._leave_places(s)

    def _enter_items(self, s: st.Items | st.Sums) -> None:
        runs, lanes = np.arange(s.run.extent)[None, :, None], np.arange(s.lane.extent)[None, None, :]
        self.indices |= {s.run.variable: runs, s.lane.variable: lanes}
        self.at_places = True

    def _join_steps(self, steps: st.Steps, done: int) -> None:
        for k, step in enumerate(steps.joins.steps if steps.joins else ()):
            assert steps.joins is not None
            if done == steps.term.extent or done % steps.joins.block ** (k + 1) == 0:
                self.body(step.body)

    def _do_sums(self, s: st.Sums) -> None:
        self._enter_items(s)
        for total in s.sums:
            (zero,) = (np.zeros((1, 1, 1), t) for t in self.types(total.dtype)[:1])
            self.locals[total.name] = (zero,) if total.first is None else self.value(total.first)
        for steps in s.steps:
            for term in range(steps.term.extent):
                self.indices[steps.term.variable] = np.asarray(term)
                self.body(steps.body)
                self._join_steps(steps, term + 1)
        self.body(s.finish)
        self._leave_places(s)
