"""Which kernels of XLA's final program compute the operations of the analysed one.

Both come from the same program before XLA's passes, and an instruction keeps its name through them, with numbers behind
it for each copy: ``exp.3`` of the one is ``exp.3.17`` in some fusion of the other. What a pass made itself, and so has
no name in common, is found by its scope, line, operation and type.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_parser import ArrayShape, Computation, Instruction, Module, Shape, TupleShape
from jax_stitch.frontend.capture.traffic import launches_nothing
from jax_stitch.inspect.planned.model import Operation

_CLONES = re.compile(r"\.(clone|remat)\d*")
_NAMED = re.compile(r"[^.#]+(\.\d+)?")
_SAME = {"bitcast": "reshape"}
_ARRAY = re.compile(r"[a-z0-9]+\[[\d,]*\]")


@dataclass(frozen=True)
class Recognised:
    """Operations of the analysed program in the final one."""

    of: Mapping[int, tuple[str, ...]]
    """The kernels that compute each operation; none where it is in none or cannot be recognised."""
    parts: Mapping[str, list[int]]
    """For kernels in which none was recognised, operations that a pass may have split such a kernel from."""


@dataclass(frozen=True)
class FinalKernels:
    """The instructions of a final program, by what they may be recognised by."""

    by_name: Mapping[tuple[str, str], tuple[str, ...]]
    by_place: Mapping[tuple[str, int, str, str], tuple[str, ...]]
    by_line: Mapping[tuple[str, int, str], tuple[str, ...]]
    """As ``by_place``, whatever the type: a reduction that XLA does in two steps has other types."""
    flows: tuple[tuple[str, str, int], ...]
    """(producer, consumer, bytes) among the kernels; the producer of what a computation is given is ""."""
    served: Mapping[str, tuple[str, ...]]
    """For each kernel what reads its results, kernels and loops, and the loop whose body or condition it is in."""
    results: tuple[tuple[str, ...], ...]
    """The kernels that make each result of the program, in order."""
    analysed: Mapping[str, tuple[str, int, str, str]]
    """The places of the analysed program's instructions."""

    def recognise(self, operations: Sequence[Operation], kernels: Collection[str]) -> Recognised:
        """Return which of ``kernels`` compute which operations."""
        of: dict[int, tuple[str, ...]] = {}
        unnamed: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
        lines: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        for i, operation in enumerate(operations):
            if operation.free:
                continue
            place = self.analysed.get(operation.name.partition("#")[0])
            if place is not None:
                lines[place[:3]].append(i)
            named = self.by_name.get((stem(operation.name), operation.op), ())
            if own_kernels := tuple(k for k in named if k in kernels):
                of[i] = own_kernels
            elif place is not None:
                unnamed[place].append(i)
        for place, own in unnamed.items():
            of |= _in_turn(own, [k for k in self.by_place.get(place, ()) if k in kernels])
        seen = {k for names in of.values() for k in names}
        parts: dict[str, list[int]] = defaultdict(list)
        for line, own in lines.items():
            silent = [k for k in self.by_line.get(line, ()) if k in kernels and k not in seen]
            for n, k in enumerate(silent):
                start = n * len(own) // len(silent)
                parts[k] += own[start : max(start + 1, (n + 1) * len(own) // len(silent))]
        return Recognised(of, parts)


def _in_turn(operations: Sequence[int], kernels: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return kernels for operations of one place: all of them for the only one; the tensors of an optimizer have one
    place, and are taken one after the other.
    """
    if not kernels:
        return {}
    if len(operations) == 1:
        return {operations[0]: tuple(kernels)}
    return {i: (kernels[n * len(kernels) // len(operations)],) for n, i in enumerate(operations)}


def final_kernels(final: Module, analysed: Module) -> FinalKernels:
    """Index a final program, to look up operations of the analysed one."""
    by_name: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    by_place: dict[tuple[str, int, str, str], dict[str, None]] = defaultdict(dict)
    by_line: dict[tuple[str, int, str], dict[str, None]] = defaultdict(dict)
    for kernel, instruction in _instructions(final, final.entry, None):
        by_line[_place(instruction)[:3]][kernel] = None
        by_name[stem(instruction.name), _SAME.get(instruction.opcode, instruction.opcode)][kernel] = None
        by_place[_place(instruction)][kernel] = None
    flows = _flows(final)
    places = {i.name: _place(i) for c in analysed.computations for i in c.instructions if i.metadata}
    return FinalKernels(
        {k: tuple(v) for k, v in by_name.items()},
        {k: tuple(v) for k, v in by_place.items() if k[0]},
        {k: tuple(v) for k, v in by_line.items() if k[0]},
        tuple((p, c, n) for (p, c), n in flows.items()),
        _served(final, flows),
        _results(final.entry),
        places,
    )


def _flows(module: Module) -> dict[tuple[str, str], int]:
    """Return what the kernels of each computation read of one another's results, whole values."""
    flows: dict[tuple[str, str], int] = defaultdict(int)
    every = [i for c in module.computations for i in c.instructions]
    fused = {name for i in every if i.opcode in ("fusion", "fusion-start") for name in _called(i)}
    for computation in module.computations:
        if computation.name in fused:
            continue
        origins = _origins(computation)
        for i in computation.instructions:
            if launches_nothing(i):
                continue
            for o in dict.fromkeys(i.operands):
                for producer in origins.get(o, ()) if computation[o].opcode != "constant" else ():
                    flows[producer, i.name] += sum(a.bytes for a in _arrays(computation[o].shape))
    return dict(flows)


def _origins(computation: Computation) -> dict[str, tuple[str, ...]]:
    """Return, for each value, the kernels that make it; "" for what a computation is given."""
    origins: dict[str, tuple[str, ...]] = {}
    for i in computation.instructions:
        if launches_nothing(i):
            elements = i.operands if i.opcode == "tuple" else i.operands[:1]
            origins[i.name] = tuple(dict.fromkeys(n for o in elements for n in origins.get(o, ()))) or ("",)
        else:
            origins[i.name] = (i.name,)
    return origins


def _results(entry: Computation) -> tuple[tuple[str, ...], ...]:
    origins = _origins(entry)
    names = entry.root.operands if entry.root.opcode == "tuple" else (entry.root.name,)
    return tuple(origins[name] for name in names)


def _served(module: Module, flows: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    consumers: dict[str, list[str]] = defaultdict(list)
    for producer, consumer in flows:
        consumers[producer].append(consumer)
    for computation in module.computations:
        for loop in (i for i in computation.instructions if i.opcode == "while"):
            for name in (*_called(loop), loop.attributes["condition"]):
                for i in module.computation(name).instructions:
                    consumers[i.name].append(loop.name)
    return {name: tuple(served) for name, served in consumers.items() if name}


def _arrays(shape: Shape) -> Iterator[ArrayShape]:
    if isinstance(shape, ArrayShape):
        yield shape
    elif isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _arrays(element)


def stem(name: str) -> str:
    """Return an instruction's name before XLA copied it into fusions: ``mul.40.7.clone.1`` is ``mul.40``."""
    match = _NAMED.match(_CLONES.sub("", name))
    return match.group() if match else name


def _place(i: Instruction) -> tuple[str, int, str, str]:
    type_ = _ARRAY.match(str(i.shape))
    at = str(i.metadata.get("op_name", "")), i.metadata.get("stack_frame_id", 0)
    return *at, i.opcode, type_.group() if type_ else ""


def _instructions(module: Module, computation: Computation, kernel: str | None) -> Iterator[tuple[str, Instruction]]:
    """Yield (kernel, instruction) of all that runs, as ``capture.traffic`` counts kernels."""
    for i in computation.instructions:
        called = _called(i)
        if i.opcode in ("while", "conditional", "call") and kernel is None:
            yield i.name, i
            for name in called:
                yield from _instructions(module, module.computation(name), None)
        elif (
            i.opcode in ("fusion", "fusion-start")
            or (i.opcode == "async-start" and called)
            or (i.opcode == "call" and kernel)
        ):
            own = kernel if kernel or i.opcode == "async-start" else i.name
            for name in called:
                yield from _instructions(module, module.computation(name), own)
        elif kernel is not None or not launches_nothing(i):
            yield kernel or i.name, i


def _called(i: Instruction) -> tuple[str, ...]:
    attributes: Mapping[str, Any] = i.attributes
    match i.opcode:
        case "while":
            return (attributes["body"],)
        case "conditional" if "branch_computations" in attributes:
            return tuple(attributes["branch_computations"])
        case "conditional":
            return attributes["true_computation"], attributes["false_computation"]
        case "call":
            return (attributes["to_apply"],)
        case "fusion" | "fusion-start" | "async-start":
            return (attributes["calls"],)
    return ()
