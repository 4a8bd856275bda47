"""A sort: what tells which of two elements comes first, and the pass that caches what is to be sorted."""

from __future__ import annotations

from msgspec import Struct

from jax_stitch.analysis.sorts import offsets
from jax_stitch.emit.body import PER_PLACE, Evaluator
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.operations import may_be_small, operation_in, values_of
from jax_stitch.emit.passes import make_pass
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.sorts import fields_of, results_of, sort_of
from jax_stitch.kernel.expressions import Field, IndexValue, Ref, Value
from jax_stitch.kernel.literals import computed
from jax_stitch.kernel.model import Comparator
from jax_stitch.kernel.statements import Allocate, Apply, Assign, Barrier, Define, Statement
from jax_stitch.schedule.model import Part, SortPass
from jax_stitch.schedule.row_passes import PatternView


class Sorter(Struct, frozen=True):
    """``order`` says which element comes first. A stable sort has the place that an element came from as its last
    field, and in its order as the last key.
    """

    order: Comparator
    arrays: tuple[Ref, ...]
    """The array of each field."""
    results: dict[int, Ref]
    """The array of each result that is used, by its node."""


def sorter(graph: Graph, node: Node, names: Names) -> Sorter:
    """Return the order of a sort and the names of its arrays."""
    sort = sort_of(graph, node)
    assert sort is not None
    fields = fields_of(node)
    base = node.name or "sort"
    types = [computed(graph[o].tensor.dtype) for o in fields] + ["s32"] * sort.stable
    arrays = tuple(Ref(names.fresh(f"{base}_of_row"), t) for t in types)
    used = zip(results_of(graph, node), node.operands, strict=True)
    results = {i: arrays[fields.index(operand)] for i, operand in used if i >= 0}
    order = names.fresh(f"Order_{base}")
    return Sorter(_comparator(graph, node, order, tuple(types), fields, sort.stable), arrays, results)


def _comparator(
    graph: Graph, node: Node, name: str, types: tuple[str, ...], fields: tuple[int, ...], stable: bool
) -> Comparator:
    """Return the order. The HLO comparator's parameters are the two elements' values of the first operand, of the
    second ..."""
    function = node.graphs["to_apply"]
    at = [fields.index(o) for o in node.operands]
    sides = Ref("a", name), Ref("b", name)
    parameters = [Field(sides[k % 2], at[k // 2], types[at[k // 2]]) for k in range(len(function.parameters))]
    values = values_of(function, parameters)
    body: list[Define] = []
    small = {p for k, p in enumerate(function.parameters) if may_be_small(graph, node.operands[k // 2])}
    for inner in function.nodes:
        if values[inner.id] is None:
            dtype = inner.tensor.dtype
            operands = [v for v in (values[o] for o in inner.operands) if v is not None]
            body.append(Define(f"v{inner.id}", dtype, operation_in(function, inner, operands, small)))
            values[inner.id] = Ref(f"v{inner.id}", dtype)
    result = values[function.results[0]]
    assert result is not None
    return Comparator(name, types, stable, tuple(body), result)


def declarations(part: Part, graph: Graph, node: Node, made: Sorter) -> list[Allocate]:
    """Return the arrays of a sort in shared memory."""
    starts, _ = offsets(graph, node, part.split.rows_per_block)
    fields = fields_of(node)
    used = zip(results_of(graph, node), node.operands, strict=True)
    storage, operand = next((part.storage[i], o) for i, o in used if i >= 0)
    first, size = storage.offset - starts[fields.index(operand)], storage.size
    return [Allocate.shared(a.name, a.dtype, size, first + at) for a, at in zip(made.arrays, starts, strict=True)]


def sort_statements(
    part: Part, shape: PatternView, row_pass: SortPass, values: Evaluator, made: Sorter
) -> list[Statement]:
    """Return a pass that caches the keys and what goes with them, and the sort of each row."""
    scope = values.open(PER_PLACE, frozenset(), frozenset())
    node = shape.graph[row_pass.sort]
    sort = sort_of(shape.graph, node)
    assert sort is not None
    index, _ = shape.value_elements(row_pass.sort)
    keys: list[Value] = [values.element(o, index).value for o in fields_of(node)]
    if sort.stable:
        keys.append(IndexValue(values.index(index[sort.dimension]), "s32", narrow=True))
    scope.lines[PER_PLACE] += [Assign(array, key) for array, key in zip(made.arrays, keys, strict=True)]
    keyed = make_pass(part, row_pass.size, [scope])
    values.close()
    arrays = tuple(array.name for array in made.arrays)
    ordered = Apply("sort", arrays, made.order.name, (row_pass.size, row_pass.first))
    return [keyed, Barrier(), ordered, Barrier()]
