"""A graph with groups of its nodes, or kernels, as single nodes: what packing looks at."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.support import is_view
from jax_stitch.graph.model import Graph, Node, TupleType

_Key = tuple[str, int]


def quotient(graph: Graph, groups: Sequence[Collection[int]]) -> tuple[Graph, list[int]]:
    """Return the graph of disjoint groups and the nodes between them, and the node that each group has become.

    Nodes that nothing comes before are left out: nothing can depend on a group through them. Raises ``AssertionError``
    where groups depend on each other in a cycle.
    """
    owner = {i: ("group", k) for k, group in enumerate(groups) for i in group}
    contents = {("group", k): sorted(group) for k, group in enumerate(groups)}
    for node in graph.nodes:
        if node.id not in owner and is_view(node) and owner.get(node.operands[0], ("node",))[0] == "group":
            # Who reads it reads the group.
            owner[node.id] = owner[node.operands[0]]
            contents[owner[node.id]].append(node.id)
        if node.id not in owner and node.operands:
            owner[node.id] = ("node", node.id)
            contents["node", node.id] = [node.id]
    reads = {
        key: {owner[o] for i in members for o in graph[i].operands if o in owner} - {key}
        for key, members in contents.items()
    }
    nodes, at = _in_order(reads)
    return Graph(graph.name, nodes, (), ()), [at["group", k] for k in range(len(groups))]


def launched(graph: Graph, kernels: Sequence[Sequence[Pattern]]) -> tuple[Graph, list[int]]:
    """Return the graph of kernels and of what is left between them, by what each reads, and the node that each kernel
    has become: what one rematerialises it need not wait for.

    Raises ``AssertionError`` where kernels wait for each other.
    """
    nodes, at = _in_order(_waits(graph, kernels))
    return Graph(graph.name, nodes, (), ()), [at["kernel", k] for k in range(len(kernels))]


def launched_in_order(graph: Graph, kernels: Sequence[Sequence[Pattern]]) -> list[tuple[_Key, Collection[_Key]]]:
    """Return kernels, as ``("kernel", number)``, and what is left between them, as ``("node", id)``, in an order in
    which they can run, each with what it reads.

    Raises ``AssertionError`` where kernels wait for each other.
    """
    reads = _waits(graph, kernels)
    _, at = _in_order(reads)
    return [(key, reads[key]) for key in at]


def can_be_launched(graph: Graph, kernels: Sequence[Sequence[Pattern]]) -> bool:
    """Return whether no kernels wait for each other: those that ``launched`` takes."""
    reads = _waits(graph, kernels)
    return len(_sorted(reads)[0]) == len(reads)


def _waits(graph: Graph, kernels: Sequence[Sequence[Pattern]]) -> dict[_Key, set[_Key]]:
    """Return what each kernel, and each node between them, reads."""
    writer = {i: ("kernel", k) for k, kernel in enumerate(kernels) for p in kernel for i in p.outputs}
    reads: dict[_Key, set[_Key]] = {}
    waiting: list[int] = []

    def read(values: Collection[int]) -> set[_Key]:
        waiting.extend(i for i in values if i not in writer)
        return {writer.get(i, ("node", i)) for i in values}

    for k, kernel in enumerate(kernels):
        reads["kernel", k] = read({i for p in kernel for i in p.inputs}) - {("kernel", k)}
    read(graph.results)
    while waiting:
        i = waiting.pop()
        if ("node", i) not in reads:
            reads["node", i] = read(graph[i].operands)
    return reads


def _in_order(reads: Mapping[_Key, Collection[_Key]]) -> tuple[tuple[Node, ...], dict[_Key, int]]:
    nodes, at = _sorted(reads)
    if len(nodes) < len(reads):
        raise AssertionError("patterns depend on each other in a cycle")
    return nodes, at


def _sorted(reads: Mapping[_Key, Collection[_Key]]) -> tuple[tuple[Node, ...], dict[_Key, int]]:
    """Return nodes after what they read, and the number of each; without those that wait in a circle."""
    users: dict[_Key, list[_Key]] = {key: [] for key in reads}
    for key, read in reads.items():
        for other in sorted(read):
            users[other].append(key)
    waiting = {key: len(read) for key, read in reads.items()}
    ready = [key for key, count in waiting.items() if not count]
    at: dict[_Key, int] = {}
    nodes: list[Node] = []
    while ready:
        key = ready.pop()
        at[key] = len(nodes)
        nodes.append(Node(len(nodes), key[0], TupleType(()), tuple(sorted(at[o] for o in reads[key]))))
        for user in users[key]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return tuple(nodes), at
