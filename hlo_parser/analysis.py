"""Questions about the dataflow of one computation: users, order, reachability, dominators.

Control dependencies count as edges, except in ``users``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .model import Computation, Instruction


def sources(i: Instruction) -> tuple[str, ...]:
    """Return what an instruction waits for: operands and control predecessors, each once."""
    return tuple(dict.fromkeys((*i.operands, *i.control_predecessors)))


def users(c: Computation) -> dict[str, tuple[str, ...]]:
    """Return, by name of each instruction, the instructions that read it, each once, in the order of the text."""
    readers: dict[str, list[str]] = {i.name: [] for i in c}
    for i in c:
        for name in dict.fromkeys(i.operands):
            readers[name].append(i.name)
    return {name: tuple(names) for name, names in readers.items()}


def topological_order(c: Computation) -> tuple[Instruction, ...]:
    """Return the instructions, each after all it waits for, otherwise in the text's order. Raises ValueError on a
    cycle.
    """
    placed: set[str] = set()
    order: list[Instruction] = []
    for start in c:
        stack = [start]
        while stack:
            i = stack[-1]
            waiting = [c[name] for name in sources(i) if name not in placed]
            if i.name in placed:
                stack.pop()
            elif waiting:
                if len(stack) > len(c):
                    raise ValueError(f"%{i.name} in %{c.name} depends on itself")
                stack.append(waiting[0])
            else:
                placed.add(i.name)
                order.append(stack.pop())
    return tuple(order)


@dataclass(frozen=True, slots=True)
class Reachability:
    """Which instructions a value flows into, in one bit per pair."""

    positions: Mapping[str, int]
    above: tuple[int, ...]

    def reaches(self, source: str, target: str) -> bool:
        """Return whether ``target`` needs ``source``, directly or not; an instruction reaches itself."""
        return bool(self.above[self.positions[target]] >> self.positions[source] & 1)

    def connected(self, a: str, b: str) -> bool:
        return self.reaches(a, b) or self.reaches(b, a)


def reachability(c: Computation) -> Reachability:
    """Return the reachability between all instructions: O(instructions x edges / 64) time."""
    order = topological_order(c)
    positions = {i.name: n for n, i in enumerate(order)}
    above: list[int] = []
    for n, i in enumerate(order):
        bits = 1 << n
        for name in sources(i):
            bits |= above[positions[name]]
        above.append(bits)
    return Reachability(positions, tuple(above))


def ancestors(c: Computation, names: Iterable[str]) -> set[str]:
    """Return the named instructions and all they need."""
    needed: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += sources(c[name])
    return needed


def dominators(c: Computation) -> dict[str, str | None]:
    """Return the immediate dominator of each: the last instruction that all paths to it from parameters and constants
    pass.

    None where no single other instruction dominates.
    """
    order = topological_order(c)
    return _dominators([i.name for i in order], {i.name: sources(i) for i in order})


def post_dominators(c: Computation) -> dict[str, str | None]:
    """Return the immediate post-dominator of each: the first instruction that all paths from it to a result pass."""
    order = topological_order(c)
    following: dict[str, list[str]] = {i.name: [] for i in order}
    for i in order:
        for name in sources(i):
            following[name].append(i.name)
    return _dominators([i.name for i in reversed(order)], {name: tuple(names) for name, names in following.items()})


def _dominators(order: list[str], before: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    """Return the immediate dominators in an acyclic graph, for nodes in topological order: one pass suffices."""
    dominator: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: 0}
    for name in order:
        common: str | None = None
        for n, other in enumerate(before[name]):
            common = other if n == 0 else _meet(common, other, dominator, depth)
        dominator[name] = common
        depth[name] = depth[common] + 1
    return dominator


def _meet(
    a: str | None, b: str | None, dominator: Mapping[str, str | None], depth: Mapping[str | None, int]
) -> str | None:
    while a != b:
        if depth[a] >= depth[b]:
            assert a is not None
            a = dominator[a]
        else:
            assert b is not None
            b = dominator[b]
    return a
