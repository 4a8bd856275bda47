"""Module -> Graph: fusions and calls opened, tuples resolved, layouts made logical.

Every value of the module becomes a tree of node ids (a tuple value is a tuple of trees), so no ``tuple`` node is ever
made and ``get-tuple-element`` is left only on nodes with several results. Carried tuples of loops and arguments of
branches are opened the same way:

- ``while``: the operands are the carried values, which are also the parameters of ``condition`` and ``body`` and the
  results of ``body``. Attributes: ``trip_count``, where known, and ``one_kernel``.
- ``conditional``: the operands are the index (s32, or pred, which counts as 0 or 1) and then the arguments of
  ``branch_0``, ``branch_1``, ... in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hlo_parser import ArrayShape, Computation, Instruction, Literal, Module, TupleShape
from jax_stitch.util.formatting import one_line
from jax_stitch.util.values import replace

from .builder import Builder, freeze
from .errors import GraphError
from .layouts import bitcast_steps
from .model import COPIED, ONE_KERNEL, STAGE, Graph, GraphLayouts, Node, NodeType, TensorType, TupleType
from .order import Listing
from .rewrites.fold import LARGEST
from .rewrites.simplify import order_broadcast
from .types import explicit_layout, minor_to_major, node_type

Tree = int | tuple["Tree", ...]

IN_PRODUCT = "in_product"
"""Attribute of transposes inside a product's kernel, by which they are not merged with the like outside."""

_ENDS = frozenset({"reduce", "reduce-window", "scan", "sort"})

_COMPUTATIONS = ("to_apply", "condition", "body", "select", "scatter")

_DROPPED = {
    *_COMPUTATIONS,
    "backend_config",
    "branch_computations",
    "called_computations",
    "calls",
    "false_computation",
    "frontend_attributes",
    "kind",
    "operand_layout_constraints",
    "origin",
    "output_to_operand_aliasing",
    "sharding",
    "statistics",
    "true_computation",
}
"""Attributes that are no part of the operation: layouts, scheduling, and computations (which are in ``graphs``)."""

_TRANSPARENT = {"add-dependency", "copy", "copy-start", "domain", "opt-barrier"}
"""The value is that of the first operand."""

_TRANSFERS = {"recv-done", "send-done"}
"""Stay as they are, as what they end does."""

_OPENED = {"async-start", "call", "call-start", "fusion", "fusion-start"}


def flatten(module: Module) -> Graph:
    """Return the entry computation as one graph. Raises GraphError for what a graph cannot hold."""
    entry = module.entry
    flattener = _Flattener(module)
    graph = flattener.graph(entry.name)
    root = entry.root.shape
    results = root.elements if isinstance(root, TupleShape) else (root,)
    parameters = tuple(explicit_layout(p.shape) for p in entry.parameters)
    layouts = GraphLayouts(parameters, tuple(map(explicit_layout, results)))
    return Graph(graph.name, graph.nodes, graph.parameters, graph.results, graph.single, layouts)


class _Flattener:
    def __init__(self, module: Module) -> None:
        self.module = module
        self._listing = Listing(module)
        self._graphs: dict[str, Graph] = {}
        self._sources: dict[int, str] = {}
        self._products: set[str] = set()
        """Fusions around a matrix product or a convolution."""
        self._by_others: set[str] = set()
        """Other fusions that XLA does not generate by its own rules, but by Triton's or a library's."""
        self._one_kernel: set[str] = set()
        """Computations that XLA:CPU compiles as one kernel, loops in them and all."""

    def graph(self, name: str) -> Graph:
        """Return the graph of a computation; its tuple parameters and results are opened."""
        if name not in self._graphs:
            computation = self.module.computation(name)
            builder = Builder(name, [order_broadcast])
            arguments = [self._parameter(builder, p) for p in computation.parameters]
            root = self._inline(builder, computation, arguments, kernel=None)
            single = not isinstance(computation.root.shape, TupleShape)
            self._graphs[name] = builder.finish(list(_leaves(root)), single, GraphLayouts())
        return self._graphs[name]

    def _parameter(self, builder: Builder, instruction: Instruction) -> Tree:
        def make(type_: NodeType) -> Tree:
            if isinstance(type_, TupleType):
                return tuple(map(make, type_.elements))
            return builder.parameter(type_, instruction.name, self._source(instruction))

        return make(node_type(instruction.shape, instruction.name))

    def _inline(self, builder: Builder, computation: Computation, arguments: list[Tree], kernel: str | None) -> Tree:
        """Add the instructions of a computation; ``kernel`` is the kernel they are part of, None where each is its
        own."""
        stages = _stages(computation, kernel) if kernel in self._by_others else {}
        values: dict[str, Tree] = {}
        for instruction in self._listing[computation]:
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[instruction.parameter_number or 0]
            else:
                operands = [values[o] for o in instruction.operands]
                part_of = stages.get(instruction.name, kernel)
                values[instruction.name] = self._instruction(builder, computation, instruction, operands, part_of)
        return values[computation.root.name]

    def _instruction(
        self, builder: Builder, computation: Computation, i: Instruction, operands: list[Tree], kernel: str | None
    ) -> Tree:
        op, a = i.opcode, i.attributes
        if op == "tuple":
            return tuple(operands)
        if op == "get-tuple-element":
            whole = operands[0]
            return whole[a["index"]] if isinstance(whole, tuple) else whole
        if op in _TRANSPARENT or (op.endswith(("-update", "-done")) and op not in _TRANSFERS):
            return operands[0]
        if op in _OPENED:
            called = self.module.computation(a["to_apply"] if "to_apply" in a else a["calls"])
            if is_one_kernel(i):
                self._one_kernel.add(called.name)
            inside = i.name if op.startswith("fusion") and kernel is None else kernel
            if inside == i.name and any(c.opcode in ("dot", "convolution") for c in called.instructions):
                self._products.add(inside)
            elif inside == i.name and str(a.get("kind")) == "kCustom":
                self._by_others.add(inside)
            return self._inline(builder, called, operands, inside)
        if op == "constant":
            assert i.literal is not None
            return self._constant(builder, i, i.literal, kernel or "")
        if op == "bitcast":
            return self._bitcast(builder, computation, i, operands[0], kernel)
        shape = i.shape
        if op.endswith("-start"):
            op = op.removesuffix("-start")
            if op != "all-reduce" and isinstance(shape, TupleShape):  # (operands, result, context)
                shape = shape.elements[1]
        return self._node(builder, computation, i, op, node_type(shape, i.name), operands, kernel)

    def _node(
        self,
        builder: Builder,
        computation: Computation,
        i: Instruction,
        op: str,
        type_: NodeType,
        operands: list[Tree],
        kernel: str | None,
    ) -> Tree:
        attributes = {k: v for k, v in i.attributes.items() if k not in _DROPPED}
        if i.opcode == "broadcast":
            attributes.setdefault("dimensions", ())  # which text may leave out for a scalar
        if i.opcode == "compare" and str(attributes.pop("order", "")) == "TOTAL":  # as jax 0.11's XLA writes it
            attributes["type"] = "TOTALORDER"
        graphs = self._called(i)
        flat = [leaf for operand in operands for leaf in _leaves(operand)]
        if op == "while":
            attributes = _loop_attributes(i) | ({ONE_KERNEL: True} if computation.name in self._one_kernel else {})
            attributes |= _copied(self.module.computation(i.attributes["body"]))
        if op == "conditional" and _pred(builder, flat[0]):
            graphs = {"branch_0": graphs["branch_1"], "branch_1": graphs["branch_0"]}
            first = len(graphs["branch_1"].parameters)  # the text gives the true branch's arguments first
            flat = [flat[0], *flat[1 + first :], *flat[1 : 1 + first]]
        if op == "custom-call":
            attributes |= self._call_attributes(computation, i)
        if op == "transpose" and kernel in self._products:
            # A product reads what lies in memory in another order: not the value that others have to write for it.
            attributes[IN_PRODUCT] = True
        whole = type_
        if isinstance(type_, TupleType):
            type_ = TupleType(tuple(_type_leaves(type_)))
        node = Node(
            -1,
            op,
            type_,
            tuple(flat),
            freeze(attributes),
            freeze(graphs),
            name=i.name,
            kernel=kernel or i.name,
            source=self._source(i),
            scope=_scope(i),
        )
        added = builder.add(node)
        if not isinstance(type_, TupleType):
            return added
        parts = iter(
            builder.derive(node, "get-tuple-element", element, [added], {"index": k})
            for k, element in enumerate(type_.elements)
        )
        return _tree_like(whole, parts)

    def _called(self, i: Instruction) -> dict[str, Graph]:
        a = i.attributes
        if i.opcode == "custom-call":
            return {}
        if i.opcode == "conditional":
            names = a.get("branch_computations") or (a["true_computation"], a["false_computation"])
            return {f"branch_{k}": self.graph(name) for k, name in enumerate(names)}
        return {key: self.graph(a[key]) for key in _COMPUTATIONS if key in a}

    def _constant(self, builder: Builder, i: Instruction, literal: Literal, kernel: str) -> Tree:
        """Add a constant; a large one of one value throughout is a broadcast of it, as XLA's passes make it."""
        if literal.missing:
            raise GraphError(
                f"the value of constant {i.name} is not in the text ({{...}}): print the module with large constants"
            )
        if isinstance(literal.shape, TupleShape):
            return tuple(self._constant(builder, i, e, kernel) for e in literal.elements)
        type_, value = node_type(literal.shape, i.name), literal.to_numpy()
        origin = Node(-1, "constant", type_, (), literal=value, name=i.name, kernel=kernel, source=self._source(i))
        if value.size <= LARGEST or any(value.strides):
            return builder.add(replace(origin, kernel=""))
        scalar = builder.constant(origin, origin.tensor.dtype, value[(0,) * value.ndim])
        return builder.derive(origin, "broadcast", type_, [scalar], {"dimensions": ()})

    def _bitcast(
        self, builder: Builder, computation: Computation, i: Instruction, operand: Tree, kernel: str | None
    ) -> Tree:
        source = computation[i.operands[0]].shape
        if not (isinstance(operand, int) and isinstance(source, ArrayShape) and isinstance(i.shape, ArrayShape)):
            return operand
        origin = Node(
            -1,
            "bitcast",
            node_type(i.shape, i.name),
            (),
            name=i.name,
            kernel=kernel or "",
            source=self._source(i),
            scope=_scope(i),
        )
        for step in bitcast_steps(source, i.shape, i.name):
            attributes = {"dimensions": step.permutation} if step.op == "transpose" else {}
            operand = builder.derive(origin, step.op, TensorType(step.dtype, step.dims), [operand], attributes)
        return operand

    def _call_attributes(self, computation: Computation, i: Instruction) -> dict[str, Any]:
        """Return the attributes of a library's call with the layouts that it asks for, as a library reads raw memory.
        Before XLA's passes these need not be its operands'.
        """
        attributes = {k: i.attributes[k] for k in ("backend_config", "output_to_operand_aliasing") if k in i.attributes}
        asked = i.attributes.get("operand_layout_constraints")
        operands = [computation[o].shape for o in i.operands] if asked is None else list(asked)
        results = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
        attributes["operand_layouts"] = tuple(minor_to_major(s) for s in operands if isinstance(s, ArrayShape))
        attributes["result_layouts"] = tuple(minor_to_major(s) for s in results if isinstance(s, ArrayShape))
        return attributes

    def _source(self, i: Instruction) -> str:
        """Return ``file:line`` of the innermost frame that is the user's own, else of the innermost."""
        frame_id = i.metadata.get("stack_frame_id", 0)
        if frame_id not in self._sources:
            stack = self.module.stack_frame(frame_id)
            own = [f for f in stack if "site-packages" not in f[0] and "dist-packages" not in f[0]]
            self._sources[frame_id] = next((f"{one_line(file)}:{line}" for file, line, _ in own or stack), "")
        if not self._sources[frame_id] and "source_file" in i.metadata:
            return f"{one_line(str(i.metadata['source_file']))}:{i.metadata.get('source_line', 0)}"
        return self._sources[frame_id]


def _stages(computation: Computation, kernel: str | None) -> dict[str, str]:
    """Return the kernels that XLA's own rules would make of a fusion by Triton or a library: each ends with a
    reduction.

    A planner weighs what XLA does by itself, as it does where functions are captured, with these fusions off; taken for
    one kernel, a softmax would be nothing to improve. The last has the fusion's name.
    """
    after: dict[str, int] = {}
    for i in computation:
        before = (after[o] + (computation[o].opcode in _ENDS) for o in i.operands)
        after[i.name] = max(before, default=0)
    last = max(after.values())
    return {name: f"{kernel}" if n == last else f"{kernel}{STAGE}{n}" for name, n in after.items()}


def _scope(i: Instruction) -> str:
    """Return ``jit(step)/encoder/exp`` without the function that is compiled and without the operation."""
    path = one_line(str(i.metadata.get("op_name", ""))).split("/")
    return "/".join(path[1:-1])


def is_one_kernel(i: Instruction) -> bool:
    """Return whether XLA:CPU compiles a call, with the loops in it, as one kernel."""
    return str(dict(i.attributes.get("frontend_attributes") or {}).get("xla_cpu_small_call")) == "true"


def _loop_attributes(i: Instruction) -> dict[str, Any]:
    config = i.attributes.get("backend_config")
    known = config.get("known_trip_count") if isinstance(config, Mapping) else None
    if isinstance(known, Mapping):
        return {"trip_count": int(known["n"])}
    return {}


def _copied(body: Computation) -> dict[str, int]:
    elements = sum(i.shape.size for i in body.instructions if i.opcode == "copy" and isinstance(i.shape, ArrayShape))
    return {COPIED: elements} if elements else {}


def _pred(builder: Builder, i: int) -> bool:
    type_ = builder[i].type
    return isinstance(type_, TensorType) and type_.dtype == "pred"


def _leaves(tree: Tree) -> Iterator[int]:
    if isinstance(tree, tuple):
        for branch in tree:
            yield from _leaves(branch)
    else:
        yield tree


def _type_leaves(type_: NodeType) -> Iterator[NodeType]:
    if isinstance(type_, TupleType):
        for element in type_.elements:
            yield from _type_leaves(element)
    else:
        yield type_


def _tree_like(type_: NodeType, leaves: Iterator[int]) -> Tree:
    if isinstance(type_, TupleType):
        return tuple(_tree_like(e, leaves) for e in type_.elements)
    return next(leaves)
