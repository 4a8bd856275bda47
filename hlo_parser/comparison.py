"""What differs between two modules, whatever their instructions and computations are called.

Instructions that compute the same from the same are found first, by a hash over all that they are computed from. What
is left is paired from the results downwards: the operands of a pair are the next candidates. Metadata does not count.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from .model import Computation, Instruction, Module
from .notations import COMPUTATION_KEYS
from .shapes import Shape, without_layout
from .values import Verbatim
from .write_module import write_attribute, write_instruction

_Hashes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Difference:
    """An instruction (or a computation's attribute) that is on one side only, or another on each.

    ``kind`` is "removed", "added" or "changed"; ``left`` and ``right`` are the instructions' lines, empty where there
    is none, and ``details`` say what has changed.
    """

    kind: str
    computation: str
    left: str = ""
    right: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind != "changed":
            return f"{'-' if self.kind == 'removed' else '+'} %{self.computation}: {self.left or self.right}"
        where = f"~ %{self.computation}: {self.left}\n  became {self.right}" if self.left else f"~ {self.computation}"
        return "\n".join([where, *(f"  {detail}" for detail in self.details)])


def diff(left: Module, right: Module, *, layouts: bool = True) -> list[Difference]:
    """Return what to change in ``left`` to get ``right``, up to names and metadata; empty if they are the same."""
    state = _State(left, right, layouts)
    differences = list(_header(left, right))
    state.compare(left.entry, right.entry)
    while state.pairs:
        state.compare(*state.pairs.popleft())
    return differences + state.differences


def _header(left: Module, right: Module) -> list[Difference]:
    details = []
    for key in dict.fromkeys((*left.attributes, *right.attributes)):
        if left.attributes.get(key) != right.attributes.get(key):
            details.append(_attribute_change(key, left.attributes.get(key), right.attributes.get(key)))
    return [Difference("changed", "the module", details=tuple(details))] if details else []


def _attribute_change(key: str, old: Any, new: Any) -> str:
    texts = ["nothing" if v is None else _short(write_attribute(key, v).split("=", 1)[1]) for v in (old, new)]
    return f"{key}: {texts[0]} -> {texts[1]}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _calls(i: Instruction) -> list[str]:
    """Return the computations that an instruction calls, in the order of their keys."""
    names: list[str] = []
    for key in sorted(COMPUTATION_KEYS & i.attributes.keys()):
        value = i.attributes[key]
        if not isinstance(value, Verbatim):
            names += (value,) if isinstance(value, str) else value
    return names


@dataclass
class _State:
    """What has been found out so far about two modules."""

    left: Module
    right: Module
    layouts: bool
    differences: list[Difference] = field(default_factory=list)
    pairs: deque[tuple[Computation, Computation]] = field(default_factory=deque)
    compared: set[tuple[str, str]] = field(default_factory=set)
    hashes: tuple[dict[str, tuple[int, _Hashes]], ...] = field(default_factory=lambda: ({}, {}))

    def hash_of(self, side: int, name: str) -> tuple[int, _Hashes]:
        """Return a computation's hash and those of its instructions. The computations it calls stand before it in the
        text.
        """
        known = self.hashes[side]
        if name not in known:
            module = (self.left, self.right)[side]
            todo = [name]
            while todo:
                c = module.computation(todo[-1])
                missing = [n for i in c for n in _calls(i) if n not in known]
                if missing:
                    todo += missing
                else:
                    known[c.name] = self._hash(side, c)
                    todo.pop()
        return known[name]

    def _hash(self, side: int, c: Computation) -> tuple[int, _Hashes]:
        hashes: _Hashes = {}
        for i in c:
            hashes[i.name] = hash((
                self.own_key(side, i),
                tuple(hashes.get(o, 0) for o in i.operands),
                frozenset(hashes.get(o, 0) for o in i.control_predecessors),
            ))  # fmt: skip
        whole = hash((c.execution_thread, tuple(sorted(hashes.values())), hashes.get(c.root.name, 0)))
        return whole, hashes

    def own_key(self, side: int, i: Instruction) -> tuple[object, ...]:
        """Return all of an instruction but what it reads and is called."""
        attributes = frozenset((k, v) for k, v in i.attributes.items() if k not in COMPUTATION_KEYS)
        called = tuple(self.hashes[side][n][0] for n in _calls(i))
        return i.opcode, self.shape(i), attributes, called, i.literal, i.parameter_number

    def shape(self, i: Instruction) -> Shape:
        return i.shape if self.layouts else without_layout(i.shape)

    def compare(self, a: Computation, b: Computation) -> None:
        """Add the differences of two computations, and the computations that their instructions call to the pairs."""
        if (a.name, b.name) in self.compared:
            return
        self.compared.add((a.name, b.name))
        (whole_a, hashes_a), (whole_b, hashes_b) = self.hash_of(0, a.name), self.hash_of(1, b.name)
        if whole_a == whole_b:
            return
        matched = _equal(a, b, hashes_a, hashes_b)
        _pair_downwards(a, b, matched)
        other = {right: left for left, right in matched.items()}
        for i in a:
            if i.name not in matched:
                self.differences.append(Difference("removed", a.name, left=write_instruction(i)))
        for j in b:
            if j.name not in other:
                self.differences.append(Difference("added", b.name, right=write_instruction(j)))
                continue
            i = a[other[j.name]]
            if hashes_a[i.name] != hashes_b[j.name]:
                self._report(a, i, j, matched)

    def _report(self, a: Computation, i: Instruction, j: Instruction, matched: dict[str, str]) -> None:
        details: list[str] = []
        if i.opcode != j.opcode:
            details.append(f"opcode: {i.opcode} -> {j.opcode}")
        if self.shape(i) != self.shape(j):
            details.append(f"shape: {i.shape} -> {j.shape}")
        if i.literal != j.literal:
            details.append("another value")
        for key in dict.fromkeys((*i.attributes, *j.attributes)):
            if key not in COMPUTATION_KEYS and i.attributes.get(key) != j.attributes.get(key):
                details.append(_attribute_change(key, i.attributes.get(key), j.attributes.get(key)))
        if [matched.get(o) for o in i.operands] != list(j.operands):
            details.append(f"operands: {', '.join(i.operands)} -> {', '.join(j.operands)}")
        if {matched.get(o) for o in i.control_predecessors} != set(j.control_predecessors):
            details.append("other control predecessors")
        for x, y in zip(_calls(i), _calls(j), strict=False):
            self.pairs.append((self.left.computation(x), self.right.computation(y)))
        if len(_calls(i)) != len(_calls(j)):
            details.append(f"calls {len(_calls(i))} -> {len(_calls(j))} computations")
        if details:
            self.differences.append(
                Difference("changed", a.name, write_instruction(i), write_instruction(j), tuple(details))
            )


def _equal(a: Computation, b: Computation, hashes_a: _Hashes, hashes_b: _Hashes) -> dict[str, str]:
    """Return instructions that compute the same, in the order of the text."""
    waiting: dict[int, deque[str]] = defaultdict(deque)
    for j in b:
        waiting[hashes_b[j.name]].append(j.name)
    return {i.name: waiting[hashes_a[i.name]].popleft() for i in a if waiting[hashes_a[i.name]]}


def _pair_downwards(a: Computation, b: Computation, matched: dict[str, str]) -> None:
    """Add pairs of instructions that stand at the same place below the roots, or are the same parameter."""
    taken = set(matched.values())
    todo = deque([(a.root.name, b.root.name)])
    todo.extend((p.name, q.name) for p, q in zip(a.parameters, b.parameters, strict=False))
    while todo:
        x, y = todo.popleft()
        if x in matched or y in taken or not (_alike(a[x], b[y]) or (x, y) == (a.root.name, b.root.name)):
            continue
        matched[x] = y
        taken.add(y)
        todo.extend(zip(a[x].operands, b[y].operands, strict=False))
    rest: dict[tuple[str, Shape], deque[str]] = defaultdict(deque)
    for j in b:
        if j.name not in taken:
            rest[j.opcode, without_layout(j.shape)].append(j.name)
    for i in a:
        candidates = rest[i.opcode, without_layout(i.shape)]
        if i.name not in matched and candidates:
            matched[i.name] = candidates.popleft()


def _alike(i: Instruction, j: Instruction) -> bool:
    """Return whether one may have become the other: the same operation, or another of the same shape."""
    if i.opcode == j.opcode:
        return i.parameter_number == j.parameter_number
    leaves = ("parameter", "constant")
    same = without_layout(i.shape) == without_layout(j.shape)
    return same and len(i.operands) == len(j.operands) and i.opcode not in leaves and j.opcode not in leaves
