"""Copies of what a program returns and did not make: XLA adds them behind all passes that a text may come from.

A text that is planned as it is would run without them, and be compared with a program that has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import hlo_parser
from hlo_parser import Computation, FrozenDict, Instruction, Module, Shape, TupleShape
from hlo_parser.rewrite import fresh_name

_GIVEN = frozenset({"parameter", "constant"})


def with_returned_copies(module: Module) -> Module:
    """Return the module with a copy of each result that is a parameter, a constant, or another result too."""
    returned = _Returned(module.entry)
    root = returned.result(module.entry.root.name, module.entry.root.shape)
    if not returned.copies:
        return module
    instructions = [replace(i, is_root=False) for i in module.entry] + returned.added
    entry = replace(
        module.entry, instructions=tuple(replace(i, is_root=True) if i.name == root else i for i in instructions)
    )
    return hlo_parser.replace_computation(module, entry)


class _Returned:
    """The results of a program, and the instructions that have to be added for them."""

    def __init__(self, computation: Computation) -> None:
        self.added: list[Instruction] = []
        self.copies = 0
        self._computation = computation
        self._taken = {i.name for i in computation}
        self._seen: set[tuple[str, tuple[int, ...]]] = set()

    def result(self, name: str, shape: Shape) -> str:
        """Return the name of what is to be returned in the place of a value."""
        if isinstance(shape, TupleShape):
            elements = [self.result(e, s) for e, s in zip(self._elements(name, shape), shape.elements, strict=True)]
            return self._add(name, "tuple", shape, elements)
        origin, path = self._origin(name)
        mine = (origin.name, path) not in self._seen and origin.opcode not in _GIVEN
        self._seen.add((origin.name, path))
        if mine or not isinstance(shape, hlo_parser.ArrayShape):
            return name
        self.copies += 1
        return self._add(name, "copy", shape, [name])

    def _elements(self, name: str, shape: TupleShape) -> Iterator[str]:
        if name in self._computation and self._computation[name].opcode == "tuple":
            yield from self._computation[name].operands
            return
        for n, element in enumerate(shape.elements):
            yield self._add(name, "get-tuple-element", element, [name], n)

    def _add(self, like: str, opcode: str, shape: Shape, operands: list[str], index: int | None = None) -> str:
        name = fresh_name(f"{like}.{opcode}", self._taken)
        self._taken.add(name)
        attributes = FrozenDict({} if index is None else {"index": index})
        self.added.append(Instruction(name, opcode, shape, tuple(operands), attributes))
        return name

    def _origin(self, name: str) -> tuple[Instruction, tuple[int, ...]]:
        """Return what made a value, behind views, and which element of it the value is."""
        known = {i.name: i for i in self.added}
        path: tuple[int, ...] = ()
        while True:
            i = self._computation[name] if name in self._computation else known[name]
            if i.opcode == "get-tuple-element":
                path = (i.attributes["index"], *path)
            elif i.opcode == "tuple" and path:
                name, path = i.operands[path[0]], path[1:]
                continue
            elif i.opcode != "bitcast":
                return i, path
            name = i.operands[0]
