"""Optimized HLO as a program that XLA takes again: without fusions, bitcasts and asynchronous pairs, which it made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hlo_parser
from hlo_parser import ArrayShape, Computation, FrozenDict, Instruction, Module, TupleShape
from hlo_parser.rewrite import fresh_name, map_instructions, remove_unused_computations, rename
from jax_stitch.graph.layouts import bitcast_steps

_ASYNC = frozenset({"async-start", "call-start", "fusion-start"})
_COPIES = frozenset({"copy", "copy-start"})
_WAITS = ("-done", "-update")
_MADE_LATE = frozenset({"fusion", "bitcast", "copy-start", "copy-done", "custom-call-start"}) | _ASYNC
_KEPT = frozenset({"send", "send-done", "recv", "recv-done"})


def is_optimized(module: Module) -> bool:
    """Return whether XLA's passes made it: it is scheduled, or has operations that only they make."""
    return bool(module.attributes.get("is_scheduled")) or any(
        i.opcode in _MADE_LATE for c in module.computations for i in c
    )


def opened(module: Module) -> Module:
    """Return the same program: fusions are calls, bitcasts are reshapes and transpositions, copies are nothing, and
    pairs of asynchronous operations are one. Layouts stay only where calls into libraries ask for them.
    """
    module = replace(module, attributes=FrozenDict())
    for c in module.computations:
        module = hlo_parser.replace_computation(module, _opened(c))
    return remove_unused_computations(map_instructions(module, lambda _, i: _without_layouts(i)))


def _opened(c: Computation) -> Computation:
    names: dict[str, str] = {}
    taken = {i.name for i in c}
    instructions: list[Instruction] = []
    for i in c:
        operand = names.get(i.operands[0], i.operands[0]) if i.operands else ""
        if i.opcode == "bitcast" or i.opcode in _COPIES:
            *_, last = news = list(_moves(c, i, operand, taken))
            names[i.name] = last.name
            instructions += news
        elif i.opcode.endswith(_WAITS) and i.opcode not in _KEPT:
            names[i.name] = operand
        else:
            instructions.append(rename(_at_once(_library_call(c, i)), {**names, i.name: i.name}))
    root = names.get(c.root.name, c.root.name)
    return replace(
        c, instructions=tuple(replace(i, is_root=i.name == root, control_predecessors=()) for i in instructions)
    )


def _moves(c: Computation, i: Instruction, operand: str, taken: set[str]) -> Iterator[Instruction]:
    """Return the operations for what a bitcast or a copy does to the logical value."""
    source, target = c[i.operands[0]].shape, i.shape
    if i.opcode in _COPIES or not (isinstance(source, ArrayShape) and isinstance(target, ArrayShape)):
        target = source
    steps = []
    if i.opcode == "bitcast" and isinstance(source, ArrayShape) and isinstance(target, ArrayShape):
        steps = bitcast_steps(source, target, i.name)
    for step in steps[:-1] if steps else ():
        name = fresh_name(f"{i.name}.{step.op}", taken)
        taken.add(name)
        yield _step(name, step, operand, i)
        operand = name
    if steps:
        yield _step(i.name, steps[-1], operand, i)
    else:
        yield Instruction(
            i.name, "reshape" if isinstance(target, ArrayShape) else "copy", target, (operand,), metadata=i.metadata
        )


def _step(name: str, step: Any, operand: str, origin: Instruction) -> Instruction:
    attributes = FrozenDict({"dimensions": step.permutation} if step.op == "transpose" else {})
    return Instruction(
        name, step.op, ArrayShape(step.dtype, step.dims), (operand,), attributes, metadata=origin.metadata
    )


def _at_once(i: Instruction) -> Instruction:
    """Return a call in place of a fusion or of the start of something asynchronous, else the whole of what is done in
    two."""
    if i.opcode in ("fusion", *_ASYNC):
        called = i.attributes["calls"] if "calls" in i.attributes else i.attributes["to_apply"]
        shape = i.shape
        if i.opcode in _ASYNC and isinstance(shape, TupleShape):  # (operands, results, context)
            shape = shape.elements[1]
        return replace(i, opcode="call", shape=shape, attributes=FrozenDict({"to_apply": called}))
    if i.opcode.endswith("-start"):
        shape = i.shape
        if i.opcode != "all-reduce-start" and isinstance(shape, TupleShape):
            shape = shape.elements[1]
        return replace(i, opcode=i.opcode.removesuffix("-start"), shape=shape)
    return i


def _library_call(c: Computation, i: Instruction) -> Instruction:
    """Make a library ask for its operands' layouts: it reads raw memory."""
    shapes = [c[o].shape for o in i.operands]
    if i.opcode != "custom-call" or not all(isinstance(s, ArrayShape) and s.layout is not None for s in shapes):
        return i
    asked = {"operand_layout_constraints": tuple(shapes), **i.attributes}
    return replace(i, attributes=FrozenDict(asked))


def _without_layouts(i: Instruction) -> Instruction:
    if i.opcode == "custom-call" and "operand_layout_constraints" in i.attributes:
        return i
    return replace(i, shape=hlo_parser.without_layout(i.shape))
