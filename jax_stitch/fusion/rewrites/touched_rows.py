"""Tables of which a step changes few rows, such as embeddings: what is computed of their dense gradient, for those rows
alone.

The gradient of a lookup is a scatter into zeros, an array as large as the table, and an optimizer goes through both.
Wherever no update came, the optimizer sees the zero. So its result is what it makes of the zero everywhere,
with what it makes of the sums of the updates in the rows that have any: the gradient is never written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.devices import Device
from jax_stitch.fusion.rewrites.first_updates import first_updates
from jax_stitch.fusion.rewrites.tables import Table, is_splat, pays, table_of
from jax_stitch.graph.builder import Builder, copied, moved
from jax_stitch.graph.model import STAGE, Graph, GraphLayouts, Node, TensorType
from jax_stitch.graph.rewrites.fold import fold
from jax_stitch.graph.row_scatters import row_scatter
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.util.values import replace


def touched_rows(graph: Graph, device: Device) -> Graph:
    """Return the graph without gradients of tables that are written only to be read by operations for each element. A
    donated table that changes in a few rows only is not even copied then.
    """
    at_exits: dict[int, Table] = {}
    taken: set[int] = set()
    for node in graph.nodes:
        table = table_of(graph, node) if node.op == "scatter" else None
        if table is not None and not taken & table.between and pays(graph, table, device):
            taken |= table.between
            at_exits.update(dict.fromkeys((*table.exits, *table.sums), table))
    if not at_exits:
        return graph
    kept = {graph.parameters[p]: graph.results[r] for p, r in graph.layouts.homes.items()}
    rows = {id(table): _Rows(graph, table, kept) for table in at_exits.values()}

    def instead(builder: Builder, node: Node, ids: Mapping[int, int]) -> int | None:
        return rows[id(at_exits[node.id])].result(builder, node.id, ids) if node.id in at_exits else None

    return copied(graph, instead)


class _Rows:
    """What is computed for the rows of a table that are touched, and for the others."""

    def __init__(self, graph: Graph, table: Table, kept: Mapping[int, int]) -> None:
        self._graph, self._table, self._kept = graph, table, kept
        self._updates = graph[table.scatter.operands[2]]
        form = row_scatter(graph, table.scatter)
        assert form is not None
        self._along, self._targets = form.update[0], form.targets
        self._touched: dict[int, int] = {}
        self._elsewhere: dict[int, int] = {}
        self._indices: int | None = None

    def result(self, builder: Builder, i: int, ids: Mapping[int, int]) -> int:
        """Return a result that the gradient was read for: ``ids`` has what is built of the graph's nodes before it."""
        if self._indices is None:
            self._indices = self._summed(builder, ids)
        if i in self._table.sums:
            return self._sum(builder, self._graph[i], ids)
        touched = self._of_touched(builder, i, ids)
        elsewhere = self._unchanged(builder, i, ids)
        if elsewhere is None:
            elsewhere = self._of_others(builder, i, ids)
        scatter, made = self._table.scatter, self._graph[i]
        scalar = TensorType(made.tensor.dtype, ())
        second = Builder("second")
        sides = [second.parameter(scalar, name) for name in ("before", "after")]
        graphs = {"to_apply": second.finish(sides[1:], True, GraphLayouts())}
        operands = (elsewhere, self._indices, touched)
        attributes = {k: v for k, v in scatter.attributes.items() if k not in ("unique_indices", "indices_are_sorted")}
        return builder.derive(_part(scatter, f"rows{i}"), "scatter", made.type, operands, attributes, graphs)

    def _sum(self, builder: Builder, node: Node, ids: Mapping[int, int]) -> int:
        """Return the sum over the touched rows, beside which all is zero."""
        operands = [self._of_touched(builder, node.operands[0], ids), ids[node.operands[1]]]
        over = {"dimensions": tuple(range(len(self._updates.tensor.dims)))}
        return builder.derive(_part(node, "rows"), "reduce", node.type, operands, over, node.graphs)

    def _summed(self, builder: Builder, ids: Mapping[int, int]) -> int:
        """Return the updates of each row added up, in their order, in the place of the first; returns the indices of
        these.
        """
        scatter = self._table.scatter
        sizes = [scatter.tensor.dims[d] for d in self._targets]
        found = first_updates(builder, _part(scatter, "first"), ids[scatter.operands[1]], sizes)
        type_ = TensorType(scatter.tensor.dtype, self._updates.tensor.dims)
        windows = {
            "update_window_dims": tuple(d for d in range(len(type_.dims)) if d != self._along),
            "inserted_window_dims": (self._along,),
            "scatter_dims_to_operand_dims": (self._along,),
            "index_vector_dim": 1,
        }
        at = _part(scatter, "sums")
        initial = ids[self._graph[scatter.operands[0]].operands[0]]
        empty = builder.derive(at, "broadcast", type_, [initial], {"dimensions": ()})
        operands = [empty, found.first, ids[scatter.operands[2]]]
        self._touched[scatter.id] = builder.derive(at, "scatter", type_, operands, windows, scatter.graphs)
        return found.indices

    def _of_touched(self, builder: Builder, i: int, ids: Mapping[int, int]) -> int:
        """Return a value in the rows that have updates, one row for each of these."""
        if i not in self._touched:
            node = self._graph[i]
            type_ = TensorType(node.tensor.dtype, self._updates.tensor.dims)
            at = _part(node, "rows")
            if node.tensor.dims == ():
                self._touched[i] = ids[i]
            elif is_splat(self._graph, i):
                self._touched[i] = builder.derive(at, "broadcast", type_, [ids[node.operands[0]]], {"dimensions": ()})
            elif node.op in ELEMENTWISE:
                operands = [self._of_touched(builder, o, ids) for o in node.operands]
                self._touched[i] = builder.derive(at, node.op, type_, operands, node.attributes, node.graphs)
            else:
                self._touched[i] = self._gathered(builder, i, type_, ids)
        return self._touched[i]

    def _gathered(self, builder: Builder, i: int, type_: TensorType, ids: Mapping[int, int]) -> int:
        assert self._indices is not None
        a, dims = self._table.scatter.attributes, self._graph[i].tensor.dims
        numbers = {
            "offset_dims": a["update_window_dims"],
            "collapsed_slice_dims": a["inserted_window_dims"],
            "start_index_map": a["scatter_dims_to_operand_dims"],
            "index_vector_dim": a["index_vector_dim"],
            "slice_sizes": tuple(1 if d in self._targets else size for d, size in enumerate(dims)),
        }
        at = _part(self._table.scatter, "read")
        return builder.derive(at, "gather", type_, [ids[i], self._indices], numbers)

    def _of_others(self, builder: Builder, i: int, ids: Mapping[int, int]) -> int:
        """Return a value where no update came."""
        if i not in self._table.between:
            return ids[i]
        if i not in self._elsewhere:
            node = self._graph[i]
            if node.op == "scatter":
                self._elsewhere[i] = ids[node.operands[0]]
            else:
                operands = [self._of_others(builder, o, ids) for o in node.operands]
                self._elsewhere[i] = _of_one_number(builder, node, operands) or builder.add(
                    moved(node, -1, tuple(operands))
                )
        return self._elsewhere[i]

    def _unchanged(self, builder: Builder, i: int, ids: Mapping[int, int]) -> int | None:
        """Return the donated parameter whose memory a result takes, where it is that but for the touched rows."""
        made = builder[self._of_others(builder, i, ids)]
        if made.op not in ("add", "subtract") or ELEMENT_TYPES[made.tensor.dtype].numpy is None:
            return None
        table, other = made.operands
        if made.op == "add" and builder[table].op == "broadcast":
            table, other = other, table
        if builder[other].op != "broadcast":
            return None
        value = builder[builder[other].operands[0]].literal
        old = next((p for p, new in self._kept.items() if new == i and ids[p] == table), None)
        return table if old is not None and value is not None and _is_nothing(made.op, value) else None


def _part(node: Node, name: str) -> Node:
    """Return the origin of what XLA has in no kernel yet: in one beside the node's."""
    return replace(node, kernel=f"{node.kernel}{STAGE}{name}" if node.kernel else "")


def _of_one_number(builder: Builder, node: Node, operands: Sequence[int]) -> int | None:
    """Return an operation on arrays that have one number everywhere, as an array of its result."""
    made = [builder[o] for o in operands]
    if not all(m.tensor.dims == () or m.op == "broadcast" for m in made):
        return None
    scalars = [m.id if m.tensor.dims == () else m.operands[0] for m in made]
    if any(builder[s].tensor.dims != () for s in scalars):
        return None
    scalar = Node(-1, node.op, TensorType(node.tensor.dtype, ()), tuple(scalars), node.attributes, node.graphs)
    scalar = replace(scalar, name=node.name, kernel=node.kernel, source=node.source, scope=node.scope)
    folded = fold(builder, scalar)
    value = builder.add(scalar) if folded is None else folded
    return builder.derive(node, "broadcast", node.type, [value], {"dimensions": ()})


def _is_nothing(op: str, value: np.ndarray) -> bool:
    """Return whether adding, or subtracting, a number changes no other, zeros of either sign among them."""
    zero = bool(value == 0)
    return zero and (value.dtype.kind in "iu" or bool(np.signbit(value.astype(np.float64))) == (op == "add"))
