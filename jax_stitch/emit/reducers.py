"""A reduction's combiner, and what its accumulators start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from jax_stitch.emit.operations import may_be_small, operation_in, unrounded, values_of
from jax_stitch.graph.combiners import neutral_value
from jax_stitch.graph.model import Graph, Node
from jax_stitch.kernel.expressions import Combine, Field, Literal, Make, Op, Ref, Value, type_of
from jax_stitch.kernel.literals import computed, literal
from jax_stitch.kernel.model import Combiner
from jax_stitch.kernel.statements import Define
from jax_stitch.kernel.walk import nodes


class Reducer(Struct, frozen=True):
    """A combiner, and values of it. ``identity`` is known where it is a single known operation; else accumulators start
    from the reduction's own initial values, as XLA's GPU reductions do.
    """

    combiner: Combiner

    @property
    def name(self) -> str:
        return self.combiner.name

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.combiner.dtypes

    @property
    def identity(self) -> Literal | None:
        return self.combiner.identity

    @property
    def fields(self) -> int:
        return len(self.dtypes)

    @property
    def dtype(self) -> str:
        """Return the type of its values where they are read."""
        return computed(self.dtypes[0]) if self.fields == 1 else self.name

    @property
    def chooses(self) -> bool:
        """Return whether a combination is one of the two values, so that the order of elements changes no rounding."""
        made = [node for line in self.combiner.body for node in nodes(line.value)]
        return all(node.opcode in ("maximum", "minimum") for node in made if isinstance(node, Op))

    def cell(self, name: str) -> Ref:
        """Return a cell of its values."""
        return Ref(name, self.dtype)

    def value(self, values: Sequence[Value]) -> Value:
        """Return a value from one of each operand."""
        return values[0] if self.fields == 1 else Make(self.name, tuple(values))

    def field(self, value: Ref, k: int) -> Ref | Field:
        return value if self.fields == 1 else Field(value, k, computed(self.dtypes[k]))

    def combined(self, left: Value, right: Value) -> Combine:
        return Combine(self.name, left, right)


def reducer(graph: Graph, reduce: Node, name: str) -> Reducer:
    """Return the combiner of ``reduce`` (``reduce`` or its partial form). Sub-word floats accumulate in float and are
    rounded once at the end.
    """
    function = reduce.graphs["to_apply"]
    operands = reduce.operands[: len(reduce.operands) // 2]
    dtypes = tuple(graph[o].tensor.dtype for o in operands)
    is_single = len(dtypes) == 1
    sides = [Ref(side, computed(dtypes[0]) if is_single else name) for side in "ab"]
    parameters: list[Value] = [*sides] if is_single else []
    if not is_single:
        parameters = [Field(side, k, t) for side in sides for k, t in enumerate(map(computed, dtypes))]
    values = values_of(function, parameters)
    body: list[Define] = []
    small = {p for p, o in zip(function.parameters, 2 * operands, strict=True) if may_be_small(graph, o)}
    for node in function.nodes:
        if values[node.id] is None:
            value = operation_in(function, node, _known(values, node.operands), small)
            value = unrounded(value) if is_single else value
            body.append(Define(f"v{node.id}", type_of(value), value))
            values[node.id] = Ref(f"v{node.id}", type_of(value))
    results = tuple(_known(values, function.results))
    return Reducer(Combiner(name, dtypes, tuple(body), results, _identity(function, dtypes[0]) if is_single else None))


def _known(values: Sequence[Value | None], wanted: Sequence[int]) -> list[Value]:
    return [v for v in (values[i] for i in wanted) if v is not None]


def _identity(function: Graph, dtype: str) -> Literal | None:
    value = neutral_value(function, dtype)
    return None if value is None else literal(np.asarray(value), dtype)
