"""The elements that a loop in teams computes, some of which the team caches."""

from __future__ import annotations

from jax_stitch.analysis.binding import position_in
from jax_stitch.analysis.maps import STEP, Index, updated_place
from jax_stitch.emit.body import PER_PLACE, UNIFORM, Evaluator, Known
from jax_stitch.emit.cpp.names import Names
from jax_stitch.graph.model import Node
from jax_stitch.ir.indices import Expr
from jax_stitch.ir.indices.variables import ROW
from jax_stitch.kernel.expressions import Counter, Ref
from jax_stitch.kernel.expressions import Element as Cell
from jax_stitch.schedule.model import Part


class TeamEvaluator(Evaluator):
    """Evaluates elements of a loop's body; what the team caches is read from its arrays."""

    def __init__(self, part: Part, names: Names, buffers: dict[int, str], cached: dict[int, str]):
        super().__init__(part, names, buffers, {})
        self._arrays = cached

    def _cached(self, node: Node, index: Index) -> Known | None:
        if node.id not in self._arrays:
            return None
        position = self.index(self.position(node.id, index))
        return self._named(node, Cell(self._arrays[node.id], position, node.tensor.dtype), PER_PLACE)

    def position(self, i: int, index: Index) -> Expr:
        """Return the place of an element in what the team caches of a value."""
        position = position_in(self._part.pattern.bindings[i], self._row, index)
        assert position is not None, f"%{i} is not local"
        return position

    def _compute(self, node: Node, index: Index) -> Known:
        if node.op != STEP:
            return super()._compute(node, index)
        a = node.attributes
        counter = Counter(a.get("name", "step"), a["start"], a["by"], node.tensor.dtype, in_indices=True)
        return self._named(node, counter, PER_PLACE)

    def _depth_of(self, e: Expr) -> int:
        return UNIFORM if all(v.name == ROW for v in e.variables()) else PER_PLACE

    def place_of(self, update: Node, index: Index) -> Index:
        """Return where an element of an update in place lies in what it is written over."""
        place = updated_place(self._graph, update, index)
        self._define_starts(update, place)
        return place.index

    def know(self, i: int, index: Index, name: Ref) -> None:
        """Give an element the name that the open sweep has for it."""
        self._scopes[-1].known[i, index] = Known(name, PER_PLACE)
