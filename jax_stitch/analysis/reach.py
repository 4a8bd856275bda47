"""Which nodes come before and after which, with chosen patterns contracted: what convexity is tested against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from jax_stitch.graph.model import Graph


def bits(ids: Collection[int]) -> int:
    """Return a set of ids as a bitset."""
    bitset = 0
    for i in ids:
        bitset |= 1 << i
    return bitset


_PLACES = tuple(tuple(k for k in range(8) if byte >> k & 1) for byte in range(256))


def members_of(bitset: int) -> Iterator[int]:
    """Yield the ids in a bitset, ascending.

    By bytes from the lowest id on: bit by bit, each would take time that grows with the graph.
    """
    if not bitset:
        return
    first = (bitset & -bitset).bit_length() - 1 & -8
    bitset >>= first
    for at, byte in enumerate(bitset.to_bytes(bitset.bit_length() + 7 >> 3, "little")):
        if byte:
            for k in _PLACES[byte]:
                yield first + 8 * at + k


def contracted_order(graph: Graph, head: Sequence[int]) -> Iterator[int]:
    """Yield the heads of groups in topological order, where each group counts as a single node (Kahn). ``head[i]`` is
    the head of node ``i``'s group. ``AssertionError`` where groups depend on each other in a cycle.
    """
    heads = sorted(set(head))
    waiting: dict[int, set[int]] = {h: set() for h in heads}
    users: dict[int, set[int]] = {h: set() for h in heads}
    for node in graph.nodes:
        for o in node.operands:
            if head[o] != head[node.id]:
                waiting[head[node.id]].add(head[o])
                users[head[o]].add(head[node.id])
    ready = [h for h in heads if not waiting[h]]
    ordered = 0
    while ready:
        h = ready.pop()
        ordered += 1
        yield h
        for u in users[h]:
            waiting[u].discard(h)
            if not waiting[u]:
                ready.append(u)
    if ordered != len(heads):
        raise AssertionError("patterns depend on each other in a cycle")


def _before(graph: Graph) -> list[int]:
    """Return what comes before each node: nodes stand behind what they read."""
    reached: list[int] = []
    for node in graph.nodes:
        before = 0
        for o in node.operands:
            before |= reached[o] | 1 << o
        reached.append(before)
    return reached


def _after(graph: Graph) -> list[int]:
    reached = [0] * len(graph)
    users = graph.users
    for i in reversed(range(len(graph))):
        after = 0
        for u in users[i]:
            after |= reached[u] | 1 << u
        reached[i] = after
    return reached


class Reach:
    """Ancestors and descendants of every node as bitsets, where each of ``groups`` counts as a single node."""

    def __init__(self, graph: Graph, groups: Sequence[Collection[int]] = ()):
        self._graph = graph
        n = len(graph)
        head = list(range(n))
        self._mask: dict[int, int] = {}
        if not groups:
            self._head, self._heads = head, (1 << n) - 1
            self._before, self._after = _before(graph), _after(graph)
            return
        for group in groups:
            first = min(group)
            mask = bits(group)
            for i in group:
                head[i] = first
            self._mask[first] = mask
        self._head = head
        self._heads = bits(set(head))
        order = list(contracted_order(graph, head))
        self._before, self._after = [0] * n, [0] * n  # Of heads; nobody asks for others'.
        for h in order:
            before = 0
            for i in self._contents(h):
                for o in graph[i].operands:
                    if head[o] != h:
                        before |= self._before[head[o]] | self._bits(head[o])
            self._before[h] = before
        for h in reversed(order):
            after = 0
            for i in self._contents(h):
                for u in graph.users[i]:
                    if head[u] != h:
                        after |= self._after[head[u]] | self._bits(head[u])
            self._after[h] = after

    def contracted(self, group: Collection[int]) -> Reach:
        """Return the same with a further group, which may hold whole groups; convex, or ``AssertionError`` is
        raised.
        """
        heads = {self._head[i] for i in group}
        if len(heads) == 1:
            return self
        mask = before = after = 0
        before_all = after_all = -1
        for h in heads:
            mask |= self._bits(h)
            before |= self._before[h]
            after |= self._after[h]
            before_all &= self._before[h]
            after_all &= self._after[h]
        before, after = before & ~mask, after & ~mask
        if before & after:
            raise AssertionError("patterns depend on each other in a cycle")
        new = object.__new__(Reach)
        new._graph = self._graph
        new._head, new._mask = self._head.copy(), self._mask.copy()
        new._before, new._after = self._before.copy(), self._after.copy()
        for h in heads:
            new._mask.pop(h, None)
        first = (mask & -mask).bit_length() - 1
        new._heads = self._heads & ~mask | 1 << first
        for i in members_of(mask):
            new._head[i] = first
        new._mask[first], new._before[first], new._after[first] = mask, before, after
        # Whatever comes after one of the group now comes after all of it, and after all that it comes after: that is
        # news to those that did not come after each of them before.
        for i in members_of(after & ~after_all & new._heads):
            new._before[i] |= before | mask
        for i in members_of(before & ~before_all & new._heads):
            new._after[i] |= after | mask
        return new

    def bits_of(self, i: int) -> int:
        """Return the group of a node, or the node alone, as a bitset."""
        return self._bits(self._head[i])

    def _bits(self, h: int) -> int:
        return self._mask.get(h, 1 << h)

    def _contents(self, h: int) -> Iterator[int]:
        return members_of(self._bits(h))

    def before(self, i: int) -> Iterator[int]:
        return members_of(self._before[self._head[i]])

    def after(self, i: int) -> Iterator[int]:
        return members_of(self._after[self._head[i]])

    def all_before(self, group: Collection[int]) -> int:
        """Return what comes before some node of a group, as a bitset."""
        before = 0
        for h in {self._head[i] for i in group}:
            before |= self._before[h]
        return before

    def all_after(self, group: Collection[int]) -> int:
        """Return what comes after some node of a group, as a bitset."""
        after = 0
        for h in {self._head[i] for i in group}:
            after |= self._after[h]
        return after

    def connected(self, a: Collection[int], b: Collection[int]) -> bool:
        """Return whether some node of one set depends on some node of the other."""
        return bool((self.all_after(a) | self.all_before(a)) & bits(b))

    def is_convex(self, group: Collection[int]) -> bool:
        """Return whether nothing outside a group, and outside the groups it touches, stands between two of its
        nodes.
        """
        mask = 0
        for h in {self._head[i] for i in group}:
            mask |= self._bits(h)
        return not self.all_before(group) & self.all_after(group) & ~mask

    def convex_part(self, members: Collection[int]) -> set[int]:
        """Return ``members`` less what makes them depend on themselves through an outside node."""
        inside = set(members)
        while True:
            mask = bits(inside)
            before = after = 0
            for i in inside:
                before |= self._before[self._head[i]]
                after |= self._after[self._head[i]]
            between = before & after & ~mask
            if not between:
                return inside
            downstream = upstream = 0
            for x in members_of(between):
                downstream |= self._after[self._head[x]]
                upstream |= self._before[self._head[x]]
            lost_down, lost_up = mask & downstream, mask & upstream
            inside -= set(members_of(lost_down if lost_down.bit_count() <= lost_up.bit_count() else lost_up))
