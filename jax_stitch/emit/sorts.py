"""The text of a sort: what tells which of two elements comes first, and the pass that stores what is to be sorted."""

from __future__ import annotations

from dataclasses import dataclass

from jax_stitch.analysis.sorts import offsets
from jax_stitch.emit import scalar
from jax_stitch.emit.body import PER_PLACE, Evaluator
from jax_stitch.emit.names import Names
from jax_stitch.emit.passes import pass_lines
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.sorts import fields_of, results_of, sort_of
from jax_stitch.schedule.model import Part, SortStage
from jax_stitch.schedule.stages import Shape


@dataclass(frozen=True, slots=True)
class Sorter:
    """``order`` is the functor with the type ``T`` of an element, the ``Arrays`` in which the elements' fields stand,
    and ``bool before(T, T)``, a strict order; ``text`` defines it.

    A stable sort has the place that an element came from as its last field, and in its order as the last key.
    """

    order: str
    text: str
    arrays: tuple[tuple[str, str], ...]
    """C++ type and name of the array of each field."""
    results: dict[int, str]
    """The array of each result that is used, by its node."""


def sorter(graph: Graph, node: Node, names: Names) -> Sorter:
    """The order of a sort and the names of its arrays."""
    sort = sort_of(graph, node)
    assert sort is not None
    fields = fields_of(node)
    base = node.name or "sort"
    types = [scalar.computed_type(graph[o].tensor.dtype) for o in fields] + ["int32_t"] * sort.stable
    arrays = tuple((t, names.fresh(f"{base}_of_row")) for t in types)
    used = zip(results_of(graph, node), node.operands, strict=True)
    results = {i: arrays[fields.index(operand)][1] for i, operand in used if i >= 0}
    order = names.fresh(f"Order_{base}")
    return Sorter(order, _functor(node, order, types, fields, sort.stable), arrays, results)


def _functor(node: Node, order: str, types: list[str], fields: tuple[int, ...], stable: bool) -> str:
    numbered = list(enumerate(types))
    body = _compared(node.graphs["to_apply"], [fields.index(o) for o in node.operands])
    before = "precedes(a, b)"
    if stable:
        before += f" || (!precedes(b, a) && a.f{len(fields)} < b.f{len(fields)})"
    return "\n".join(
        [
            f"struct {order} {{",
            f"  struct T {{ {' '.join(f'{t} f{k};' for k, t in numbered)} }};",
            f"  struct Arrays {{ {' '.join(f'{t}* f{k};' for k, t in numbered)} }};",
            "  ST_MEMBER T get(const Arrays& from, int at) {",
            f"    return {{{', '.join(f'from.f{k}[at]' for k, _ in numbered)}}};",
            "  }",
            "  ST_MEMBER void put(const Arrays& to, int at, const T& value) {",
            f"    {' '.join(f'to.f{k}[at] = value.f{k};' for k, _ in numbered)}",
            "  }",
            "  ST_MEMBER bool precedes(const T& a, const T& b) {",
            *(f"    {line}" for line in body),
            "  }",
            f"  ST_MEMBER bool before(const T& a, const T& b) {{ return {before}; }}",
            "};",
        ]
    )


def _compared(comparator: Graph, fields: list[int]) -> list[str]:
    """The comparator's lines; its parameters are the two elements' values of the first operand, of the second, ..."""
    names = {p: f"{'ba'[k % 2 == 0]}.f{fields[k // 2]}" for k, p in enumerate(comparator.parameters)}
    lines: list[str] = []
    for node in comparator.nodes:
        if node.id in names:
            continue
        if node.op == "constant":
            assert node.literal is not None
            names[node.id] = scalar.literal(node.literal, node.tensor.dtype)
            continue
        dtypes = [comparator[o].tensor.dtype for o in node.operands]
        text = scalar.expression(node, [names[o] for o in node.operands], dtypes)
        names[node.id] = f"v{node.id}"
        lines.append(f"const {scalar.computed_type(node.tensor.dtype)} v{node.id} = {text};")
    return [*lines, f"return {names[comparator.results[0]]};"]


def declarations(part: Part, graph: Graph, node: Node, made: Sorter) -> list[str]:
    """The arrays of a sort in shared memory."""
    starts, _ = offsets(graph, node, part.split.rows_per_block)
    results = zip(results_of(graph, node), node.operands, strict=True)
    fields = fields_of(node)
    first = next(part.storage[i].offset - starts[fields.index(o)] for i, o in results if i >= 0)
    return [f"ST_SHARED({t}, {name}, {first + at})" for (t, name), at in zip(made.arrays, starts, strict=True)]


def sort_lines(part: Part, shape: Shape, stage: SortStage, values: Evaluator, made: Sorter) -> list[str]:
    """A pass that stores the keys and what goes with them, and the sort of each row."""
    scope = values.stage(PER_PLACE, frozenset(), frozenset())
    node = shape.graph[stage.sort]
    sort = sort_of(shape.graph, node)
    assert sort is not None
    index, _ = shape.value_elements(stage.sort)
    texts = [values.element(o, index).text for o in fields_of(node)]
    if sort.stable:
        texts.append(f"int32_t({values.render(index[sort.dimension])})")
    lines = [f"{name}[p_] = {text};" for (_, name), text in zip(made.arrays, texts, strict=True)]
    scope.lines[PER_PLACE] += lines
    stored = pass_lines(part, stage.size, [scope])
    values.close()
    arrays = ", ".join(name for _, name in made.arrays)
    return [*stored, "ST_SYNC", f"ST_SORT({made.order}, {stage.size}, {stage.first}, {arrays})", "ST_SYNC"]
