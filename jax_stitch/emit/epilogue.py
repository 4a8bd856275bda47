"""Epilogues of loops in teams in the kernel language: what each team computes of the values that a loop leaves."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from jax_stitch.analysis.binding import inner_sizes
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.sweeps import index_at
from jax_stitch.analysis.patterns.team import End, TeamLoop
from jax_stitch.emit.body import PER_PLACE, PER_ROW, UNIFORM
from jax_stitch.emit.cpp.lines import tables
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.passes import place_axes
from jax_stitch.emit.team_values import TeamEvaluator
from jax_stitch.ir.indices import linearize, var
from jax_stitch.ir.indices.variables import PLACE, RUN
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element as Cell
from jax_stitch.schedule.model import Part, Storage, StorageKind
from jax_stitch.util.values import replace


class EpilogueWriter:
    """Writes what comes after a loop. ``names`` are those of what is outside it; ``kept`` are the arrays with the last
    values, by what these are outside, and ``out`` those that are written.
    """

    def __init__(
        self,
        part: Part,
        loop: TeamLoop,
        names: Names,
        buffers: Mapping[int, str],
        kept: Mapping[int, str],
        out: Mapping[int, str],
    ):
        self._graph, self._loop, self._out = names.graph, loop, out
        self._values = TeamEvaluator(self._part_after(part), names, dict(buffers), dict(kept))

    def _part_after(self, part: Part) -> Part:
        """Return the epilogue as a part: all is computed, but for what the loop leaves and the arrays outside."""
        bound = {c.result: c.binding for c in self._loop.carried if c.result is not None}
        sizes = {i: prod(inner_sizes(b)) for i, b in bound.items()}
        storage = {i: Storage(i, StorageKind.SHARED, self._graph[i].tensor, n) for i, n in sizes.items()}
        # A loop in the body of another has no epilogue, and its graph is not the pattern's.
        computed = part.pattern.inside if self._loop.ends else frozenset[int]()
        inside = frozenset(i for i in computed if i not in bound and self._graph[i].op != "while")
        pattern = Pattern(inside, self._loop.rows, bound, part.pattern.inputs, ())
        return replace(part, pattern=pattern, storage=storage)

    def tables(self) -> tuple[model.Table, ...]:
        """Return the constant arrays."""
        return tables(self._graph, self._values.tables)

    def declared(self) -> tuple[st.Statement, ...]:
        """Return the loop-invariant values."""
        return tuple(self._values.uniform.lines[UNIFORM])

    def statements(self) -> list[st.Items]:
        """Return the sweeps, one for each value that is written."""
        return [self._sweep(end) for end in self._loop.ends]

    def _sweep(self, end: End) -> st.Items:
        values, tensor = self._values, self._graph[end.node].tensor
        *others, lanes = inner_sizes(end.binding) or (1,)
        runs = prod(others)
        index = index_at(self._loop, end.binding, linearize((var(RUN, runs), var(PLACE, lanes)), (runs, lanes)))
        scope = values.open(PER_PLACE, frozenset(), frozenset())
        value = values.element(end.node, index).value
        target = Cell(self._out[end.node], values.index(linearize(index, tensor.dims)), tensor.dtype)
        values.close()
        lines = (*scope.lines[PER_ROW], *scope.lines[PER_PLACE])
        return st.Items(*place_axes(lanes, runs), (), (*lines, st.Assign(target, value)))
