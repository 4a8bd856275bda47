"""The least launches of memory-intensive kernels that a program can have while its library calls stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import hlo_parser
from hlo_parser import Computation, Instruction, Module
from jax_stitch.capture.traffic import is_free, is_library
from jax_stitch.capture.trips import trip_count


@dataclass(frozen=True, slots=True)
class _Chain:
    """The longest chain of launches that ends with a value."""

    done: int
    """Memory-intensive launches in it."""
    one_more: int
    """The same with one more memory-intensive operation at its end: no more, where that can join the last launch."""


def floor(text: str) -> int:
    """Counts on optimized HLO text.

    Whatever depends on a library call and is needed by another has to be a launch between the two. Everything else may
    share launches: independent kernels can be packed, dependent ones stitched. A loop without library calls can be one
    kernel; any other needs what its body needs in each trip (once where the number of trips is not known).
    """
    module = hlo_parser.parse(text)
    return _floor(module, module.entry)


def _floor(module: Module, computation: Computation) -> int:
    chains: dict[str, _Chain] = {}
    for instruction in computation.instructions:
        before = [chains[name] for name in dict.fromkeys(instruction.operands)]
        done, one_more = max((c.done for c in before), default=0), max((c.one_more for c in before), default=1)
        nested = [module.computation(name) for name in _nested(instruction)]
        if is_free(instruction) or instruction.opcode == "copy":  # which no program asks for
            chains[instruction.name] = _Chain(done, one_more)
        elif any(_has_library(module, inside) for inside in nested):
            count = max(_floor(module, inside) for inside in nested) * _trips(module, computation, instruction)
            chains[instruction.name] = _Chain(done + count, done + count + 1)
        elif is_library(module, instruction):
            chains[instruction.name] = _Chain(done, done + 1)
        else:
            chains[instruction.name] = _Chain(one_more, one_more)
    return max((c.done for c in chains.values()), default=0)


def _nested(instruction: Instruction) -> tuple[str, ...]:
    """The computations whose instructions are launched one by one for an instruction."""
    attributes = instruction.attributes
    match instruction.opcode:
        case "while":
            return (attributes["body"],)
        case "conditional" if "branch_computations" in attributes:
            return tuple(attributes["branch_computations"])
        case "conditional":
            return attributes["true_computation"], attributes["false_computation"]
        case "call":
            return (attributes["to_apply"],)
        case "async-start":
            return (attributes["calls"],)
        case _:
            return ()


def _has_library(module: Module, computation: Computation) -> bool:
    return any(
        is_library(module, i) or any(_has_library(module, module.computation(name)) for name in _nested(i))
        for i in computation.instructions
    )


def _trips(module: Module, computation: Computation, instruction: Instruction) -> int:
    return (trip_count(module, computation, instruction) or 1) if instruction.opcode == "while" else 1
