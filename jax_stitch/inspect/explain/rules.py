"""Why XLA's fusion passes stopped between two kernels: the rules that the operational analysis of XLA's fusion found by
hand, each checked on the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from jax_stitch.analysis.reach import Reach, bits
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import LIBRARY, is_library, is_rematerializable, library_word
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.inspect.explain.model import Stop
from jax_stitch.ir.operations import HEAVY
from jax_stitch.util.formatting import format_bytes

INSTRUCTION_FUSION, FUSION_MERGER, MULTI_OUTPUT = "instruction fusion", "fusion merger", "multi-output fusion"

NO_RULE = "no rule forbids it: XLA's cost model saw no gain, or both kernels compute it, which a plan counts once"


@dataclass(frozen=True, eq=False)
class Kernels:
    """XLA's kernels of a graph."""

    graph: Graph
    device: Device

    @cached_property
    def members(self) -> Mapping[str, tuple[int, ...]]:
        members: dict[str, list[int]] = defaultdict(list)
        for node in self.graph.nodes:
            if node.kernel:
                members[node.kernel].append(node.id)
        return {name: tuple(ids) for name, ids in members.items()}

    @cached_property
    def reach(self) -> Reach:
        return Reach(self.graph)

    def readers(self, i: int) -> tuple[str, ...]:
        """Return the other kernels that read a value."""
        own = self.graph[i].kernel
        kernels = (self.graph[u].kernel for u in self.graph.users[i])
        return tuple(dict.fromkeys(k for k in kernels if k and k != own))

    def operands(self, name: str) -> set[int]:
        """Return what a kernel reads."""
        ids = set(self.members[name])
        return {
            o for i in ids for o in self.graph[i].operands if o not in ids and not is_rematerializable(self.graph[o])
        }

    def results(self, name: str) -> set[int]:
        """Return what a kernel writes."""
        ids = set(self.members[name])
        outer = self.graph.result_set
        return {i for i in ids if i in outer or any(u not in ids for u in self.graph.users[i])}


def stops(kernels: Kernels, i: int, joined: Mapping[int, frozenset[int]]) -> Iterator[Stop]:
    """Yield where XLA's fusion stopped beside a node: at what it reads, and at what reads it.

    ``joined`` are the nodes that share a stitched kernel with each node.
    """
    graph = kernels.graph
    pairs = [(o, i) for o in dict.fromkeys(graph[i].operands)] + [(i, u) for u in graph.users[i]]
    for p, c in pairs:
        producer, consumer = graph[p], graph[c]
        if is_rematerializable(producer) or producer.op == "parameter" or producer.kernel == consumer.kernel:
            continue
        if not producer.kernel or not consumer.kernel:
            continue
        pass_, reason = why(kernels, producer, consumer)
        both = c in joined.get(p, frozenset())
        yield Stop(_named(producer), _named(consumer), pass_, reason, both, node_bytes(producer))


def _named(node: Node) -> str:
    return node.name or node.op


def why(kernels: Kernels, producer: Node, consumer: Node) -> tuple[str, str]:
    """Return the pass of XLA and the rule that kept a consumer's kernel from taking the producer's in."""
    graph = kernels.graph
    for node in (producer, consumer):
        if is_library(graph, node) or node.op in ("while", "conditional", "call", "sort"):
            word = library_word(node) if node.op in LIBRARY else "a call"
            return INSTRUCTION_FUSION, f"{_named(node)} is {word}, whose kernel XLA's fusion passes do not go into"
    readers = kernels.readers(producer.id)
    rules = (_cycle, _parameter_limit, _reduction, _concatenate, _expensive, _duplicated, _unlike)
    for rule in rules:
        stopped = rule(kernels, producer, consumer, readers)
        if stopped is not None:
            return stopped
    return FUSION_MERGER, NO_RULE


_Found = tuple[str, str] | None


def _cycle(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    """Explain that joined kernels would wait for a third one that waits for them."""
    p, c = (kernels.members[n.kernel] for n in (producer, consumer))
    both = bits([*p, *c])
    between = kernels.reach.all_after(p) & kernels.reach.all_before(c) & ~both
    if not between:
        return None
    third = kernels.graph[between.bit_length() - 1]
    return FUSION_MERGER, f"a cycle: {third.name or third.op} comes after the one kernel and before the other"


def _parameter_limit(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    names = (producer.kernel, consumer.kernel)
    reads = set().union(*map(kernels.operands, names)) - set(kernels.members[producer.kernel])
    count = len(reads) + len(kernels.results(consumer.kernel))
    most = kernels.device.target.most_operands
    if count <= most:
        return None
    return FUSION_MERGER, f"the parameter limit: together they have {count} operands and results, of at most {most}"


def _reduction(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    """Explain that XLA makes a kernel around a reduction, which is its last step: what needs the result is another
    kernel's.
    """
    graph = kernels.graph
    inside = [graph[i] for i in kernels.members[producer.kernel] if graph[i].op in ("reduce", "reduce-window")]
    before = [r for r in inside if r.id == producer.id or kernels.reach.all_after([r.id]) >> producer.id & 1]
    if not before:
        return None
    last = before[-1]
    where = "it is" if last.id == producer.id else f"{producer.name or producer.op} comes after"
    return (
        INSTRUCTION_FUSION,
        f"a reduction in the middle: {where} {last.name or last.op}, with which a kernel of XLA ends",
    )


def _concatenate(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    graph = kernels.graph
    users = len(graph.users[producer.id])
    if producer.op != "concatenate" or users < 2:
        return None
    return INSTRUCTION_FUSION, f"a concatenate with {users} users, which XLA fuses into none of them"


def _expensive(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    """Explain that costly operations would be computed again for each kernel or each place that reads them."""
    graph = kernels.graph
    heavy = [graph[i] for i in kernels.members[producer.kernel] if graph[i].op in HEAVY]
    if not heavy:
        return None
    costly = heavy[-1]
    named = f"the expensive {costly.op} {costly.name}".rstrip()
    if len(readers) > 1:
        return FUSION_MERGER, f"{named} would be computed in each of the {len(readers)} kernels that read it"
    times = _repeats(graph, producer, consumer)
    if times > 1:
        return INSTRUCTION_FUSION, f"{named} would be computed {times:,} times for each value: {consumer.op} repeats it"
    return None


def _repeats(graph: Graph, producer: Node, consumer: Node) -> int:
    """Return how often a consumer reads each element."""
    if not isinstance(producer.type, TensorType) or not isinstance(consumer.type, TensorType):
        return 1
    if consumer.op != "broadcast":
        return 1
    return max(1, consumer.type.size // max(1, producer.type.size))


def _duplicated(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    """Explain that several kernels read it: each would have to read what it reads."""
    if len(readers) < 2:
        return None
    graph = kernels.graph
    read = sum(node_bytes(graph[o]) for o in kernels.operands(producer.kernel))
    saved = (len(readers) + 1) * sum(node_bytes(graph[i]) for i in kernels.results(producer.kernel))
    extra = (len(readers) - 1) * read
    verdict = "more than" if extra > saved else "though that is less than"
    return (
        FUSION_MERGER,
        f"multiple users: each of {len(readers)} kernels would compute it and read {format_bytes(read)} for it, "
        f"{format_bytes(extra)} in all besides, {verdict} the {format_bytes(saved)} of its results",
    )


def _unlike(kernels: Kernels, producer: Node, consumer: Node, readers: tuple[str, ...]) -> _Found:
    """Return the rule that a kernel of several results has one shape of loops: that of all its reductions or
    results.
    """
    graph = kernels.graph
    if producer.id in kernels.results(producer.kernel) and producer.id in graph.result_set:
        shapes = {graph[i].type for i in kernels.results(consumer.kernel)} | {producer.type}
        if len(shapes) > 1:
            return MULTI_OUTPUT, "the value is a result as well, and the two kernels go over arrays of other shapes"
    return None
