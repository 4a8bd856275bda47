"""The flat dataflow graph: what the fusion explorer, the scheduler and the replay all read.

A graph is logical: a value is its dtype and dimensions, never its layout. Fusions and calls are opened, so that each
node is one HLO operation which remembers the XLA kernel it came from. Where physical layout matters (the buffers of
parameters and results) it is in the `layouts` of the graph, not on the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct, field


class TensorType(Struct, frozen=True):
    """An array value: HLO element type name ("f32", "bf16", "pred", "s32", ...) and logical dimensions, major to
    minor."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        size = 1
        for d in self.dims:
            size *= d
        return size

    def holds(self, low: int, high: int) -> bool:
        """Return whether its elements are integers of a type that has every number from ``low`` to ``high``."""
        kind, bits = self.dtype[0], self.dtype[1:]
        if kind not in "su" or not bits.isdigit():
            return False
        least, count = (-(1 << int(bits) - 1) if kind == "s" else 0), 1 << int(bits)
        return least <= low and high < least + count

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


class TupleType(Struct, frozen=True):
    """The value of a node with several results (while, sort, variadic reduce, some custom calls)."""

    elements: tuple[NodeType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


class TokenType(Struct, frozen=True):
    """An ordering token; it carries no data."""

    def __str__(self) -> str:
        return "token[]"


NodeType = TensorType | TupleType | TokenType


ROLLED = "rolled"
"""Attribute of a result of a loop that XLA:CPU compiles as one kernel, and that is unrolled in the graph: its trips."""

ONE_KERNEL = "one_kernel"
"""Attribute of a loop that XLA:CPU compiles as one kernel, with all its steps: one that touches little in a step."""

COPIED = "copied"
"""Attribute of a loop in whose steps XLA copies arrays: the elements of a step. In the graph a copy is nothing."""

EXPANDED = "expanded"
"""Attribute of a loop whose calls of libraries are written out: it was judged by XLA's time for the calls."""

STREAMED = "streamed"
"""Attribute of a loop over tiles of some arrays, which teams are estimated to run faster than XLA these arrays."""

STAGE = "/"
"""Before the number of a part, in the names of kernels; none of HLO's names has it."""


class Node(Struct, frozen=True, eq=False):
    """One HLO operation.

    ``op`` is HLO's opcode spelling. Layout-only operations do not occur: a ``bitcast`` or ``copy`` that changes
    layouts has become ``reshape`` and ``transpose`` in logical terms, or has vanished. ``attributes`` are those of the
    parser (see ``hlo_parser``), less what only concerns layouts. ``graphs`` holds the called computations by attribute
    name: ``to_apply``, ``body``, ``condition``, ``branch_0``, ``branch_1``, ...
    """

    id: int
    op: str
    type: NodeType
    operands: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    graphs: Mapping[str, Graph] = field(default_factory=lambda: MappingProxyType({}))
    literal: np.ndarray | None = None
    name: str = ""
    """The HLO instruction's name (of one of them, where duplicates were merged)."""
    kernel: str = ""
    """Name of the XLA kernel (top-level instruction of its computation) that computed it; behind ``STAGE`` the number
    of a part of it that counts as a kernel of its own."""
    source: str = ""
    """``file:line`` of the user's function, or empty."""
    scope: str = ""
    """The named scopes around the user's operation, outermost first: ``"encoder/attention"``."""

    @property
    def xla_kernel(self) -> str:
        """Return the name of the XLA kernel by itself."""
        return self.kernel.partition(STAGE)[0]

    @property
    def tensor(self) -> TensorType:
        """Return the type of a node known to be an array."""
        assert isinstance(self.type, TensorType), f"{self.name} is no array: {self.type}"
        return self.type

    def __str__(self) -> str:
        operands = ", ".join(f"%{i}" for i in self.operands)
        return f"%{self.id} = {self.type} {self.op}({operands})"


class GraphLayouts(Struct, frozen=True):
    """Physical layouts (minor-to-major) of a graph's parameters and results; ``None`` for row-major or for what is no
    array."""

    parameters: tuple[tuple[int, ...] | None, ...] = ()
    results: tuple[tuple[int, ...] | None, ...] = ()
    homes: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """By number of a donated parameter, or of what a loop carries: the result that takes its memory."""

    def with_homes(self, homes: Mapping[int, int]) -> GraphLayouts:
        """Return the same layouts where parameters are donated."""
        return GraphLayouts(self.parameters, self.results, MappingProxyType(dict(homes)))


_ROW_MAJOR = GraphLayouts()


@dataclass(frozen=True, eq=False)
class Graph:
    """A computation as nodes in topological order: ``nodes[i].id == i`` and operands come before their users.

    ``results`` are the ids of the root's elements (a tuple root is opened one level; ``single`` is False then, even
    for a 1-tuple); ``parameters`` are the ids of the ``parameter`` nodes in order.
    """

    name: str
    nodes: tuple[Node, ...]
    parameters: tuple[int, ...]
    results: tuple[int, ...]
    single: bool = False
    layouts: GraphLayouts = _ROW_MAJOR

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each node, the ids of the nodes that read it (each once, ascending)."""
        users: list[dict[int, None]] = [{} for _ in self.nodes]
        for node in self.nodes:
            for operand in node.operands:
                users[operand][node.id] = None
        return tuple(tuple(f) for f in users)

    @cached_property
    def result_set(self) -> frozenset[int]:
        """Return the ids of the results, to look one up: a model's training step has hundreds."""
        return frozenset(self.results)

    def __getitem__(self, i: int) -> Node:
        return self.nodes[i]

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        lines = [f"graph {self.name} {{"]
        lines += [f"  {node}" + (f"  // {node.kernel}" if node.kernel else "") for node in self.nodes]
        lines.append(f"  return {', '.join(f'%{i}' for i in self.results)}")
        return "\n".join([*lines, "}"])
