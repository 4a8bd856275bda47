"""Smaller programs made of a program, each a little simpler: whether it still fails is for others to find out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

import hlo_parser
from hlo_parser import ArrayShape, Computation, Instruction, Module, TupleShape
from hlo_parser.analysis import ancestors
from hlo_parser.rewrite import remove_unused_computations
from jax_stitch.jit.debug.case import Case

_FIXED = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "iota"})
_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,]+)\](\{[^}]*\})?")
_SIZES = re.compile(r"\b(dynamic_slice_sizes|slice_sizes)=\{([0-9,]*)\}")
_SLICE = re.compile(r"\[0:(\d+)\]")


def reductions(case: Case) -> Iterator[Case]:
    """Yield reduced cases, from the boldest to the smallest step."""
    yield from fewer_results(case)
    yield from earlier_roots(case)
    yield from later_starts(case)
    yield from opened_calls(case)
    yield from bypasses(case)
    yield from shorter_dimensions(case)


def size(case: Case) -> tuple[int, int]:
    """Return the size that shrinks: instructions without parameters (and those that only name others), then
    elements.
    """
    instructions = [i for c in case.module.computations for i in c]
    elements = sum(i.shape.size for i in instructions if isinstance(i.shape, ArrayShape))
    counted = sum(i.opcode not in ("parameter", "tuple", "fusion", "call") for i in instructions)
    return counted, elements


def simplest(case: Case) -> Case:
    """Return the case without what is not the program itself: its header's attributes, where its operations come
    from.
    """
    module = replace(case.module, attributes=hlo_parser.FrozenDict(), stack_frames=None)
    nothing = hlo_parser.FrozenDict[str, object]()
    module = hlo_parser.rewrite.map_instructions(module, lambda _, i: replace(i, metadata=nothing))
    return trimmed(case, module.entry, module)


def trimmed(case: Case, entry: Computation, module: Module | None = None) -> Case:
    """Return the case with another entry, less what its root does not need, parameters renumbered."""
    needed = ancestors(entry, [entry.root.name])
    kept = [i for i in entry if i.name in needed]
    numbers = {
        p.name: n for n, p in enumerate(sorted((i for i in kept if i.parameter_number is not None), key=_number))
    }
    instructions = tuple(replace(i, parameter_number=numbers[i.name]) if i.name in numbers else i for i in kept)
    waiting = {i.name for i in kept}
    instructions = tuple(
        replace(i, control_predecessors=tuple(p for p in i.control_predecessors if p in waiting)) for i in instructions
    )
    changed = hlo_parser.replace_computation(module or case.module, replace(entry, instructions=instructions))
    return replace(case, module=remove_unused_computations(changed))


def _number(i: Instruction) -> int:
    return i.parameter_number or 0


def fewer_results(case: Case) -> Iterator[Case]:
    """Yield cases with half of the results, then without one."""
    entry = case.module.entry
    results = entry.root.operands if entry.root.opcode == "tuple" else ()
    for part in parts(len(results)):
        kept = [name for n, name in enumerate(results) if n not in part]
        if kept:
            yield with_results(case, kept)


def with_results(case: Case, names: Collection[str]) -> Case:
    """Return the case with these instructions as its results."""
    entry = case.module.entry
    instructions = [replace(i, is_root=False) for i in entry if i.name != entry.root.name or i.name in names]
    if len(names) == 1:
        (name,) = names
        instructions = [replace(i, is_root=i.name == name) for i in instructions]
    else:
        shape = TupleShape(tuple(entry[name].shape for name in names))
        taken = {i.name for i in instructions}
        name = hlo_parser.rewrite.fresh_name("results", taken)
        instructions.append(Instruction(name, "tuple", shape, tuple(names), is_root=True))
    return trimmed(case, replace(entry, instructions=tuple(instructions)))


def earlier_roots(case: Case) -> Iterator[Case]:
    """Yield cases with the operands of the root, or of one of several results, in its place."""
    entry = case.module.entry
    results = list(entry.root.operands) if entry.root.opcode == "tuple" else [entry.root.name]
    for n, name in enumerate(results):
        for operand in dict.fromkeys(entry[name].operands):
            if isinstance(entry[operand].shape, ArrayShape) and entry[operand].opcode != "parameter":
                yield with_results(case, list(dict.fromkeys((*results[:n], operand, *results[n + 1 :]))))


def later_starts(case: Case) -> Iterator[Case]:
    """Yield cases with parameters in place of instructions: of long stretches of the program, then of single ones."""
    entry = case.module.entry
    candidates = [i.name for i in entry if i.opcode not in _FIXED and isinstance(i.shape, ArrayShape) and not i.is_root]
    for part in parts(len(candidates)):
        yield with_parameters(case, {candidates[n] for n in part})


def with_parameters(case: Case, names: Collection[str]) -> Case:
    """Return the case with these instructions as parameters."""
    entry, count = case.module.entry, len(case.module.entry.parameters)
    instructions = []
    for i in entry:
        if i.name in names:
            i = Instruction(i.name, "parameter", i.shape, parameter_number=count, is_root=i.is_root)
            count += 1
        instructions.append(i)
    return trimmed(case, replace(entry, instructions=tuple(instructions)))


def parts(count: int) -> Iterator[set[int]]:
    """Yield stretches of so many places, the longest first."""
    length = count
    while length >= 1:
        for start in range(0, count, length):
            yield set(range(start, min(start + length, count)))
        length //= 2


def opened_calls(case: Case) -> Iterator[Case]:
    """Yield cases with fusions and calls replaced by what they hold: all of them, or one."""
    calls = [(c.name, i.name) for c in case.module.computations for i in c if i.opcode in ("fusion", "call")]
    module = case.module
    for computation, name in calls:
        if name in module.computation(computation):
            module = hlo_parser.inline(module, computation, name)
    chosen = [module, *(hlo_parser.inline(case.module, c, name) for c, name in calls)] if calls else []
    for opened in chosen:
        yield trimmed(case, opened.entry, opened)


def bypasses(case: Case) -> Iterator[Case]:
    """Yield cases with an operand in place of an operation that returns the same type, in any computation."""
    for c in case.module.computations:
        for i in reversed(tuple(c)):
            if i.opcode in _FIXED:
                continue
            same = [
                o for o in i.operands if hlo_parser.without_layout(c[o].shape) == hlo_parser.without_layout(i.shape)
            ]
            for operand in dict.fromkeys(same):
                changed = hlo_parser.replace_uses(c, i.name, operand)
                changed = replace(changed, instructions=tuple(x for x in changed if x.name != i.name))
                module = hlo_parser.replace_computation(case.module, changed)
                yield trimmed(case, module.entry, module)


def shorter_dimensions(case: Case) -> Iterator[Case]:
    """Yield cases with one size of dimensions, and its multiples, made smaller wherever it stands."""
    text = str(case.module)
    sizes = {int(d) for shape in _SHAPE.findall(text) for d in shape[1].split(",") if d}
    for old in sorted((s for s in sizes if s > 1), reverse=True):
        for new in dict.fromkeys((1, 2, old // 4, old // 2, old - 1)):
            if not 0 < new < old:
                continue
            for multiples in (False, True):
                if (changed := _resized(case, text, old, new, multiples)) is not None:
                    yield changed


def _resized(case: Case, text: str, old: int, new: int, multiples: bool) -> Case | None:
    def one(size: str) -> str:
        n = int(size)
        return str(n // old * new) if n == old or (multiples and n and n % old == 0) else size

    def listed(sizes: str) -> str:
        return ",".join(map(one, sizes.split(","))) if sizes else sizes

    text = _SHAPE.sub(lambda m: f"{m[1]}[{listed(m[2])}]{m[3] or ''}", text)
    text = _SIZES.sub(lambda m: f"{m[1]}={{{listed(m[2])}}}", text)
    text = _SLICE.sub(lambda m: f"[0:{one(m[1])}]", text)
    try:
        module = hlo_parser.parse(text)
    except hlo_parser.HloParseError:  # Such as a constant that no longer has the size that its type says.
        return None
    if hlo_parser.verify(module):
        return None
    return replace(case, module=module, values=_cut(module, case))


def _cut(module: Module, case: Case) -> dict[str, np.ndarray]:
    """Return the values' first elements along the dimensions that have become shorter."""
    values = {}
    for i in module.entry:
        value = case.values.get(i.name)
        if value is not None and isinstance(i.shape, ArrayShape) and value.ndim == i.shape.rank:
            values[i.name] = np.ascontiguousarray(value[tuple(slice(d) for d in i.shape.dims)])
    return values
