"""Which kernels of XLA's final program compute the operations of the analysed one.

Both come from the same program before XLA's passes, and an instruction keeps its name through them, with numbers behind
it for each copy: ``exp.3`` of the one is ``exp.3.17`` in some fusion of the other. What a pass made itself, and so has
no name in common, is found by its scope, line, operation and type.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hlo_parser import ArrayShape, Computation, Instruction, Module, Shape, TupleShape
from jax_stitch.capture.traffic import is_free
from jax_stitch.planned.model import Operation

_CLONES = re.compile(r"\.(clone|remat)\d*")
_NAMED = re.compile(r"[^.#]+(\.\d+)?")
_SAME = {"bitcast": "reshape"}
_ARRAY = re.compile(r"[a-z0-9]+\[[\d,]*\]")


@dataclass(frozen=True)
class FinalKernels:
    """The instructions of a final program, by what they may be recognised by."""

    by_name: Mapping[tuple[str, str], tuple[str, ...]]
    by_place: Mapping[tuple[str, int, str, str], tuple[str, ...]]
    by_line: Mapping[tuple[str, int, str], tuple[str, ...]]
    """As ``by_place``, whatever the type: a reduction that XLA does in two steps has other types."""
    flows: tuple[tuple[str, str, int], ...]
    """(producer, consumer, bytes) among the kernels; the producer of what a computation is given is ""."""
    analysed: Mapping[str, tuple[str, int, str, str]]
    """The places of the analysed program's instructions."""

    def parts_of(self, operation: Operation) -> tuple[str, ...]:
        """The names of all kernels that may have a part in an operation: also where a pass split it."""
        place = self.analysed.get(operation.name.partition("#")[0])
        return () if place is None else self.by_line.get(place[:3], ())

    def of(self, operation: Operation) -> tuple[str, ...]:
        """The names of the kernels that compute an operation; none where it is in none or cannot be recognised."""
        found = self.by_name.get((stem(operation.name), operation.op))
        if found is None:
            place = self.analysed.get(operation.name.partition("#")[0])
            found = () if place is None else self.by_place.get(place, ())
        return found


def final_kernels(final: Module, analysed: Module) -> FinalKernels:
    """Indexes a final program, to look up operations of the analysed one."""
    by_name: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    by_place: dict[tuple[str, int, str, str], dict[str, None]] = defaultdict(dict)
    by_line: dict[tuple[str, int, str], dict[str, None]] = defaultdict(dict)
    for kernel, instruction in _instructions(final, final.entry, None):
        by_line[_place(instruction)[:3]][kernel] = None
        by_name[stem(instruction.name), _SAME.get(instruction.opcode, instruction.opcode)][kernel] = None
        by_place[_place(instruction)][kernel] = None
    places = {i.name: _place(i) for c in analysed.computations for i in c.instructions if i.metadata}
    return FinalKernels(
        {k: tuple(v) for k, v in by_name.items()},
        {k: tuple(v) for k, v in by_place.items() if k[0]},
        {k: tuple(v) for k, v in by_line.items() if k[0]},
        tuple((p, c, n) for (p, c), n in _flows(final).items()),
        places,
    )


def _flows(module: Module) -> dict[tuple[str, str], int]:
    """What the kernels of each computation read of one another's results, whole values."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    fused = {name for c in module.computations for i in c.instructions if i.opcode == "fusion" for name in _called(i)}
    for computation in module.computations:
        if computation.name in fused:
            continue
        origin: dict[str, str] = {}
        for i in computation.instructions:
            if is_free(i):
                origin[i.name] = origin.get(i.operands[0], "") if i.operands and i.opcode != "tuple" else ""
                continue
            origin[i.name] = i.name
            for o in dict.fromkeys(i.operands):
                if computation[o].opcode != "constant":
                    found[origin.get(o, ""), i.name] += sum(a.bytes for a in _arrays(computation[o].shape))
    return dict(found)


def _arrays(shape: Shape) -> Iterator[ArrayShape]:
    if isinstance(shape, ArrayShape):
        yield shape
    elif isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _arrays(element)


def stem(name: str) -> str:
    """An instruction's name before XLA copied it into fusions: ``mul.40.7.clone.1`` is ``mul.40``."""
    found = _NAMED.match(_CLONES.sub("", name))
    return found.group() if found else name


def _place(i: Instruction) -> tuple[str, int, str, str]:
    type_ = _ARRAY.match(str(i.shape))
    at = str(i.metadata.get("op_name", "")), i.metadata.get("stack_frame_id", 0)
    return *at, i.opcode, type_.group() if type_ else ""


def _instructions(module: Module, computation: Computation, kernel: str | None) -> Iterator[tuple[str, Instruction]]:
    """(kernel, instruction) of all that runs, as ``capture.traffic`` counts kernels."""
    for i in computation.instructions:
        called = _called(i)
        if i.opcode in ("while", "conditional", "call") and kernel is None:
            yield i.name, i
            for name in called:
                yield from _instructions(module, module.computation(name), None)
        elif i.opcode == "fusion" or (i.opcode == "async-start" and called) or (i.opcode == "call" and kernel):
            own = kernel if kernel or i.opcode == "async-start" else i.name
            for name in called:
                yield from _instructions(module, module.computation(name), own)
        elif kernel is not None or not is_free(i):
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
        case "fusion" | "async-start":
            return (attributes["calls"],)
    return ()
