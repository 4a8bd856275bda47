"""A graph with groups of its nodes as single nodes: what packing looks at."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax_stitch.explore.support import is_view
from jax_stitch.graph.model import Graph, Node, TupleType


def quotient(graph: Graph, groups: Sequence[Collection[int]]) -> tuple[Graph, list[int]]:
    """The graph of disjoint groups and the nodes between them, and the node that each group has become.

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
    users: dict[tuple[str, int], list[tuple[str, int]]] = {key: [] for key in contents}
    for key, read in reads.items():
        for other in sorted(read):
            users[other].append(key)
    waiting = {key: len(read) for key, read in reads.items()}
    ready = [key for key, count in waiting.items() if not count]
    at: dict[tuple[str, int], int] = {}
    nodes: list[Node] = []
    while ready:
        key = ready.pop()
        at[key] = len(nodes)
        nodes.append(Node(len(nodes), key[0], TupleType(()), tuple(sorted(at[o] for o in reads[key]))))
        for user in users[key]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(nodes) < len(contents):
        raise AssertionError("patterns depend on each other in a cycle")
    return Graph(graph.name, tuple(nodes), (), ()), [at["group", k] for k in range(len(groups))]
