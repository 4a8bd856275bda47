"""The operations of an analysed program as one list, loop bodies and branches included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from jax_stitch.analysis.sizes import is_of_one_number, node_bytes
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.inspect.planned.model import NOWHERE, Operation

_CALLS = ("while", "conditional", "call")
_NO_WORK = frozenset({"parameter", "get-tuple-element", "tuple", "after-all", "add-dependency"})
_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "slice", "concatenate", "pad", "reverse", "copy", "bitcast-convert", "iota"}
)
"""What computes nothing."""


@dataclass(frozen=True)
class Listing:
    """The operations of a graph and of the bodies in it."""

    operations: tuple[Operation, ...]
    computations: tuple[tuple[Graph, Mapping[int, int]], ...]
    """Each graph, with the operation that each of its nodes is."""
    results: tuple[int, ...]
    """The operations that are the program's results, in order."""


def listing_of(graph: Graph) -> Listing:
    """Return all operations, those of a loop's body right after the loop."""
    lister = _Lister()
    results = lister.add(graph, parent=NOWHERE, trips=1, arguments=None)
    return Listing(tuple(lister.operations), tuple(lister.computations), tuple(results))


class _Lister:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.computations: list[tuple[Graph, Mapping[int, int]]] = []
        self._names: dict[str, int] = {}

    def add(self, graph: Graph, parent: int, trips: int, arguments: list[int] | None) -> list[int]:
        """Return the operations of a graph; ``arguments`` stand for its parameters. Returns those of its results."""
        here: dict[int, int] = {} if arguments is None else dict(zip(graph.parameters, arguments, strict=True))
        results = graph.result_set if arguments is None else frozenset[int]()
        self.computations.append((graph, here))
        for node in graph.nodes:
            if node.id in here:
                continue
            operands = tuple(dict.fromkeys(here[o] for o in node.operands))
            here[node.id] = len(self.operations)
            self.operations.append(
                Operation(
                    name=self._unique(node.name or node.op),
                    op=node.op,
                    type=str(node.type),
                    bytes=node_bytes(node),
                    flops=trips * flops_of(graph, node),
                    operands=operands,
                    source=node.source,
                    scope=node.scope,
                    parent=parent,
                    trips=trips,
                    free=_is_no_work(graph, node),
                    result=node.id in results,
                )
            )
            if node.op in _CALLS:
                self._bodies(node, here[node.id], trips, [here[o] for o in node.operands])
        return [here[r] for r in graph.results]

    def _bodies(self, node: Node, here: int, trips: int, operands: list[int]) -> None:
        """Add what a loop or a branch runs. Its results are read by the loop itself, which others read."""
        made: list[int] = []
        for name, body in node.graphs.items():
            count = trips * node.attributes.get("trip_count", 1) if node.op == "while" else trips
            given = operands
            if node.op == "conditional":
                before = sum(len(g.parameters) for k, g in node.graphs.items() if k < name)
                given = operands[1 + before :]
            made += self.add(body, here, count, given[: len(body.parameters)])
        inside = (i for i in made if i > here)
        self.operations[here] = _with_operands(
            self.operations[here], (*self.operations[here].operands, *dict.fromkeys(inside))
        )

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _with_operands(o: Operation, operands: tuple[int, ...]) -> Operation:
    at = o.source, o.scope, o.parent, o.trips, o.free, o.result
    return Operation(o.name, o.op, o.type, o.bytes, o.flops, operands, *at)


def _is_no_work(graph: Graph, node: Node) -> bool:
    if node.op in _NO_WORK or is_rematerializable(node) or is_of_one_number(graph, node.id):
        return True
    return node.op == "constant" or (not node.kernel and node.op in ("reshape", "transpose"))


def flops_of(graph: Graph, node: Node) -> int:
    """Return the arithmetic operations of a node; what it only moves counts nothing."""
    sizes = [graph[o].type for o in node.operands]
    first = sizes[0] if sizes and isinstance(sizes[0], TensorType) else None
    match node.op:
        case "dot" if first is not None and isinstance(node.type, TensorType):
            contracted = prod(first.dims[d] for d in node.attributes.get("lhs_contracting_dims", ()))
            return 2 * node.type.size * contracted
        case "convolution" if len(sizes) > 1 and isinstance(sizes[1], TensorType) and isinstance(node.type, TensorType):
            features = max(1, max(sizes[1].dims, default=1))
            return 2 * node.type.size * max(1, sizes[1].size // features)
        case "reduce" | "reduce-window" if first is not None:
            return first.size
        case op if op in _MOVES or op in _NO_WORK or op in _CALLS or op.startswith("dynamic-"):
            return 0
        case _:
            return node.type.size if isinstance(node.type, TensorType) and not _is_no_work(graph, node) else 0
