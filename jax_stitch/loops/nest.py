"""Loops opened: a graph and the bodies of its ``while`` loops, at any depth, as one flat graph.

What a loop carries, and what it leaves, are nodes without operands in it, so that whatever follows elements through a
graph follows them through loops as well: a body reads what is outside directly, and a counter is known in closed form.
Branches become selects; a loop in a branch that is not taken makes no trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from jax_stitch.analysis.maps import STEP
from jax_stitch.analysis.patterns.nest import RESULT, Carried, NestedLoop, Stacked
from jax_stitch.graph.builder import freeze, moved, node_key
from jax_stitch.graph.model import Graph, Node, NodeType, TensorType
from jax_stitch.ir.indices.expr import Div, Expr, Var, Within, const, var, within
from jax_stitch.loops.carried import roles_of
from jax_stitch.util.values import replace

CARRY = "loop-carry"
"""A carried value at the start of an iteration."""


class NotStitched(Exception):
    """A loop cannot run inside a kernel's threads; the message says why, as a noun phrase or the end of a sentence."""


@dataclass(frozen=True, eq=False)
class Opened:
    """The flat graph: the outer graph's nodes under their own numbers, then those of the bodies.

    ``loops`` are in an order in which they can run, each before the loops inside it. ``refused`` says why other
    ``while`` nodes are not among them.
    """

    graph: Graph
    loops: tuple[NestedLoop, ...]
    refused: Mapping[int, str]


def open_loops(graph: Graph) -> Opened:
    """Open every loop of ``graph`` that can be opened."""
    flat = _Flat(graph)
    refused: dict[int, str] = {}
    for node in graph.nodes:
        if node.op != "while":
            continue
        mark = flat.mark()
        try:
            flat.open_loop(graph, node, {i: i for i in range(len(graph))}, None, node.id, None)
        except NotStitched as error:
            flat.reset(mark)
            refused[node.id] = str(error)
    nodes = tuple(flat.nodes)
    return Opened(replace(graph, nodes=nodes), tuple(flat.loops), MappingProxyType(refused))


class _Flat:
    """The flat graph under construction."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = list(graph.nodes)
        self.loops: list[NestedLoop] = []
        self._outer = len(graph)
        self._known: dict[Any, int] = {}

    def mark(self) -> tuple[int, int, dict[int, Node]]:
        return len(self.nodes), len(self.loops), dict(enumerate(self.nodes[: self._outer]))

    def reset(self, mark: tuple[int, int, dict[int, Node]]) -> None:
        """Forget what was added since ``mark``."""
        nodes, loops, outer = mark
        del self.nodes[nodes:], self.loops[loops:]
        self.nodes[: self._outer] = outer.values()
        self._known = {k: i for k, i in self._known.items() if i < nodes}

    def _add(self, node: Node) -> int:
        """Add a node, or return its equal: a loop's condition is the one its body selects by."""
        key = node_key(node)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(moved(node, len(self.nodes), node.operands))
        return self._known[key]

    def _derive(
        self, like: Node, op: str, type_: NodeType, operands: Sequence[int], attributes: Mapping[str, Any] | None = None
    ) -> int:
        named = Node(-1, op, type_, tuple(operands), freeze(attributes or {}), name=like.name, source=like.source)
        return self._add(named)

    def _constant(self, like: Node, value: np.generic, dtype: str) -> int:
        node = Node(-1, "constant", TensorType(dtype, ()), (), literal=np.asarray(value), name=like.name)
        return self._add(node)

    def open_loop(
        self, graph: Graph, node: Node, ids: dict[int, int], parent: int | None, outermost: int, taken: int | None
    ) -> None:
        """Add a ``while`` of ``graph``, whose nodes are ``ids`` in the flat graph."""
        roles = roles_of(graph, node, counters_after=True)
        if roles is None:
            raise NotStitched("a loop whose carried values are used in a way that a kernel cannot serve")
        number, body = len(self.loops), roles.body
        step = f"step_{number}" if number else "step"
        nested = NestedLoop(number, parent, outermost, step, roles.trips, None, (), ())
        self.loops.append(nested)
        inner: dict[int, int] = {parameter: ids[outer] for parameter, outer in roles.arrays.items()}
        stacked = {k for k, _, _ in roles.stacked} if parent is None else set()
        values = [*roles.values, *(k for k, _, _ in roles.stacked if k not in stacked)]
        for k, parameter in enumerate(body.parameters):
            p = body[parameter]
            if p.op == STEP:
                inner[parameter] = self._derive(p, STEP, p.type, (), {**p.attributes, "name": step})
                self._last_count(graph, node, ids, k, p, parent)
            elif k in values:
                inner[parameter] = self._derive(p, CARRY, p.type, (), {"loop": number, "number": k})
        self._inline(body, inner, number, outermost, taken)
        carried = []
        for k in values:
            following = inner.get(body.results[k])
            if following is None:
                raise NotStitched("a loop that updates a carried array in place")
            result = self._result(graph, node, ids, number, k, body[body.parameters[k]], parent)
            carried.append(Carried(inner[body.parameters[k]], following, ids[node.operands[k]], result))
        stacks = []
        for k, update, starts in roles.stacked:
            if k not in stacked:
                continue
            if update not in inner:
                raise NotStitched("a loop that updates a carried array in place")
            renamed = tuple(_renamed(e, step) for e in starts)
            stack = self._result(graph, node, ids, number, k, body[body.parameters[k]], parent)
            stacks.append(Stacked(inner[update], renamed, stack))
        condition = None
        if roles.condition is not None:
            condition = inner[roles.condition]
            if taken is not None:
                condition = self._derive(self.nodes[condition], "and", self.nodes[condition].type, (condition, taken))
        self.loops[number] = replace(nested, condition=condition, carried=tuple(carried), stacked=tuple(stacks))

    def _last_count(self, graph: Graph, node: Node, ids: dict[int, int], k: int, p: Node, parent: int | None) -> None:
        """Replace a counter after its loop by a constant."""
        a = p.attributes
        bits = int(p.tensor.dtype[1:])
        value = (a["start"] + a["by"] * a["trips"]) % (1 << bits)
        if p.tensor.dtype[0] == "s" and value >= 1 << (bits - 1):
            value -= 1 << bits
        literal = np.asarray(value, f"{'int' if p.tensor.dtype[0] == 's' else 'uint'}{bits}")
        for u in _readers(graph, node, k):
            if parent is None:
                self.nodes[u] = Node(u, "constant", p.type, (), literal=literal, name=p.name, source=p.source)
            else:
                ids[u] = self._add(Node(-1, "constant", p.type, (), literal=literal, name=p.name))

    def _result(
        self, graph: Graph, node: Node, ids: dict[int, int], number: int, k: int, like: Node, parent: int | None
    ) -> int:
        """Return the node for what a loop leaves; in the outer graph the one that takes it from the loop's tuple."""
        readers = _readers(graph, node, k)
        leaf = Node(-1, RESULT, like.type, (), freeze({"loop": number, "number": k}), name=like.name)
        if parent is None and readers:
            result = readers[0]
            self.nodes[result] = replace(leaf, id=result, name=graph[result].name or like.name, source=node.source)
            return result
        result = self._add(leaf)
        ids.update(dict.fromkeys(readers, result))
        return result

    def _inline(self, graph: Graph, ids: dict[int, int], loop: int, outermost: int, taken: int | None) -> None:
        """Add the nodes of a body or branch. What depends on parameters that have no number is left out."""
        for node in graph.nodes:
            if node.id in ids or any(o not in ids for o in node.operands) or node.op == "parameter":
                continue
            called = graph[node.operands[0]].op if node.op == "get-tuple-element" else ""
            if called == "while" or called == "conditional":
                continue
            if node.op == "while":
                self.open_loop(graph, node, ids, loop, outermost, taken)
            elif node.op == "conditional":
                self._branches(graph, node, ids, loop, outermost, taken)
            else:
                ids[node.id] = self._add(moved(node, -1, tuple(ids[o] for o in node.operands)))

    def _branches(
        self, graph: Graph, node: Node, ids: dict[int, int], loop: int, outermost: int, taken: int | None
    ) -> None:
        """Add all branches; the one that is taken is selected."""
        branches = [node.graphs[f"branch_{k}"] for k in range(len(node.graphs))]
        which = self.nodes[ids[node.operands[0]]]
        pred = TensorType("pred", ())
        chosen: list[int] = []
        for k in range(1, len(branches)):
            if which.tensor.dtype == "pred":
                chosen.append(which.id)
            elif k < len(branches) - 1:
                number = self._constant(node, np.int32(k), "s32")
                chosen.append(self._derive(node, "compare", pred, (which.id, number), {"direction": "EQ"}))
        if which.tensor.dtype != "pred":
            # Any other number, negative ones too, means the last branch.
            last = self._constant(node, np.uint32(len(branches) - 1), "u32")
            unsigned = self._derive(node, "bitcast-convert", TensorType("u32", ()), (which.id,))
            chosen.append(self._derive(node, "compare", pred, (unsigned, last), {"direction": "GE"}))
        if len(branches) == 1:  # It is taken whatever the number is.
            chosen, conditions = [], [self._constant(node, np.bool_(True), "pred")]
        else:
            others = chosen[0] if len(chosen) == 1 else self._any(node, chosen)
            conditions = [self._derive(node, "not", pred, (others,)), *chosen]
        by_branch: list[list[int]] = []
        first = 1
        for condition, branch in zip(conditions, branches, strict=True):
            arguments = [ids[o] for o in node.operands[first : first + len(branch.parameters)]]
            first += len(branch.parameters)
            inner = dict(zip(branch.parameters, arguments, strict=True))
            here = condition if taken is None else self._derive(node, "and", pred, (taken, condition))
            self._inline(branch, inner, loop, outermost, here)
            if any(r not in inner for r in branch.results):
                raise NotStitched("a branch whose result is no array")
            by_branch.append([inner[r] for r in branch.results])
        values = by_branch[0]
        for condition, results in zip(chosen, by_branch[1:], strict=True):
            values = [
                self._derive(self.nodes[new], "select", self.nodes[new].type, (condition, new, old))
                for new, old in zip(results, values, strict=True)
            ]
        if isinstance(node.type, TensorType):
            ids[node.id] = values[0]
        for u in graph.users[node.id]:
            if graph[u].op == "get-tuple-element":
                ids[u] = values[graph[u].attributes["index"]]

    def _any(self, like: Node, conditions: Iterable[int]) -> int:
        either, *rest = conditions
        for c in rest:
            either = self._derive(like, "or", TensorType("pred", ()), (either, c))
        return either


def _readers(graph: Graph, node: Node, k: int) -> list[int]:
    """Return what stands for value ``k`` of a loop: what takes it from the loop's tuple, or the loop if it has no
    tuple.
    """
    if isinstance(node.type, TensorType):
        return [node.id]
    return [u for u in graph.users[node.id] if graph[u].attributes.get("index") == k]


def _renamed(e: Expr, step: str) -> Expr:
    """Return an index with the variable ``step`` of a single loop under the loop's own name for it."""
    renamed = const(e.offset)
    for atom, c in e.terms:
        if isinstance(atom, Var):
            piece = var(step if atom.name == "step" else atom.name, low=atom.low, high=atom.high)
        elif isinstance(atom, Within):
            piece = within(_renamed(atom.of, step), atom.low, atom.high)
        else:
            inner = _renamed(atom.of, step)
            piece = inner // atom.by if isinstance(atom, Div) else inner % atom.by
        renamed = renamed + piece * c
    return renamed
