"""New modules from old ones. Nothing is changed in place; what is not touched is shared."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from .analysis import ancestors
from .model import Computation, Instruction, Module
from .notations import COMPUTATION_KEYS
from .values import FrozenDict, Verbatim


def fresh_name(wanted: str, taken: Container[str]) -> str:
    """Return ``wanted``, or with the first free number behind it."""
    if wanted not in taken:
        return wanted
    n = 1
    while f"{wanted}.{n}" in taken:
        n += 1
    return f"{wanted}.{n}"


def called(i: Instruction) -> tuple[str, ...]:
    """Return names of the computations an instruction calls, in the order of its attributes."""
    names: list[str] = []
    for key, value in i.attributes.items():
        if key in COMPUTATION_KEYS and not isinstance(value, Verbatim):
            names += (value,) if isinstance(value, str) else value
    return tuple(names)


def rename(i: Instruction, names: Mapping[str, str], computations: Mapping[str, str] | None = None) -> Instruction:
    """Return the instruction with its own name, those it reads and those it calls looked up in the mappings."""
    attributes: Mapping[str, Any] = i.attributes
    if computations and any(name in computations for name in called(i)):
        changed: dict[str, Any] = dict(attributes)
        for key in COMPUTATION_KEYS & changed.keys():
            value = changed[key]
            if isinstance(value, tuple):
                changed[key] = tuple(computations.get(name, name) for name in value)
            elif isinstance(value, str):
                changed[key] = computations.get(value, value)
        attributes = FrozenDict(changed)
    return replace(
        i,
        name=names.get(i.name, i.name),
        operands=tuple(names.get(o, o) for o in i.operands),
        control_predecessors=tuple(names.get(o, o) for o in i.control_predecessors),
        attributes=attributes,
    )


def map_instructions(module: Module, visit: Callable[[Computation, Instruction], Instruction]) -> Module:
    """Return the module with every instruction replaced by what ``visit`` returns for it (itself, to keep it)."""
    return replace(module, computations=tuple(
        replace(c, instructions=tuple(visit(c, i) for i in c)) for c in module.computations
    ))  # fmt: skip


def replace_computation(module: Module, new: Computation) -> Module:
    """Return the module with ``new`` in place of the computation of its name. Raises KeyError if there is none."""
    module.computation(new.name)
    return replace(module, computations=tuple(new if c.name == new.name else c for c in module.computations))


def replace_uses(c: Computation, old: str, new: str) -> Computation:
    """Make all that reads ``old`` read ``new``, and ``new`` the root if ``old`` was. ``new`` must come before those
    readers.
    """
    was_root = c[old].is_root
    c[new]  # must exist

    def one(i: Instruction) -> Instruction:
        i = i if i.name in (old, new) else rename(i, {i.name: i.name, old: new})
        return replace(i, is_root=i.name == new) if was_root else i

    return replace(c, instructions=tuple(map(one, c)))


def replace_instruction(c: Computation, old: str, new: Iterable[Instruction]) -> Computation:
    """Return the instructions ``new`` in place of ``old``; the last of them takes over its readers and its being
    root.
    """
    news = list(new)
    last = news[-1].name
    news[-1] = replace(news[-1], is_root=c[old].is_root)
    instructions: list[Instruction] = []
    for i in c:
        if i.name == old:
            instructions += news
        else:
            instructions.append(rename(i, {i.name: i.name, old: last}))
    return replace(c, instructions=tuple(instructions))


def remove_dead(c: Computation) -> Computation:
    """Remove instructions that the root does not need. Parameters and operations with side effects stay."""
    keep = ancestors(
        c, [i.name for i in c if i.is_root or i.opcode in _LASTING or i.attributes.get("custom_call_has_side_effect")]
    )
    return replace(c, instructions=tuple(i for i in c if i.name in keep))


_LASTING = frozenset(
    ("parameter", "infeed", "outfeed", "send", "send-done", "recv", "recv-done", "rng-get-and-update-state")
)


def clone(module: Module, name: str, new_name: str | None = None) -> tuple[Module, str]:
    """Return the module with a copy of a computation before the original, and the copy's name; both call the same
    others.
    """
    name_of_copy = fresh_name(new_name or f"{name}.clone", {c.name for c in module.computations})
    computations: list[Computation] = []
    for c in module.computations:
        if c.name == name:
            computations.append(replace(c, name=name_of_copy, is_entry=False))
        computations.append(c)
    if len(computations) == len(module.computations):
        raise KeyError(name)
    return replace(module, computations=tuple(computations)), name_of_copy


def remove_unused_computations(module: Module) -> Module:
    """Remove computations that the entry does not call, directly or not."""
    keep: set[str] = set()
    left = [module.entry.name]
    while left:
        name = left.pop()
        if name not in keep:
            keep.add(name)
            left += [called_name for i in module.computation(name) for called_name in called(i)]
    return replace(module, computations=tuple(c for c in module.computations if c.name in keep))


def inline(module: Module, computation: str, instruction: str) -> Module:
    """Return the module with a fusion or call replaced by the instructions of what it calls.

    The called computation itself stays (see ``remove_unused_computations``). Raises ValueError for other operations.
    """
    c = module.computation(computation)
    call = c[instruction]
    key = {"fusion": "calls", "call": "to_apply"}.get(call.opcode)
    if key is None:
        raise ValueError(f"%{instruction} is a {call.opcode}; only a fusion or a call can be inlined")
    body = module.computation(call.attributes[key])
    taken = {i.name for i in c}
    names: dict[str, str] = {}
    news: list[Instruction] = []
    for i in body:
        if i.parameter_number is not None:
            names[i.name] = call.operands[i.parameter_number]
            continue
        names[i.name] = fresh_name(i.name, taken)
        taken.add(names[i.name])
        waits = call.control_predecessors
        moved = replace(rename(i, names), is_root=False)
        news.append(replace(moved, control_predecessors=(*moved.control_predecessors, *waits)) if waits else moved)
    result = names[body.root.name]
    at = next(n for n, i in enumerate(c) if i.name == instruction)
    kept = [rename(i, {i.name: i.name, instruction: result}) for i in c if i.name != instruction]
    instructions = [*kept[:at], *news, *kept[at:]]
    if call.is_root:
        instructions = [replace(i, is_root=i.name == result) for i in instructions]
    return replace_computation(module, replace(c, instructions=tuple(instructions)))
