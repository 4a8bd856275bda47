"""How many kernels optimized HLO launches, and how many bytes of device memory they read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hlo_parser
from hlo_parser import ArrayShape, Computation, Instruction, Module, Shape, TupleShape
from jax_stitch.frontend.capture.trips import trip_count
from jax_stitch.graph.flattening import is_one_kernel

_NO_LAUNCH = frozenset(
    (
        *("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "get-dimension-size"),
        *("after-all", "add-dependency", "domain", "opt-barrier", "optimization-barrier"),
    )
)
"""What names a value and runs nothing."""

_WAITS = ("-update", "-done")
"""How operations end that wait for what has been started: XLA of jax 0.11 runs fusions in a loop's body so."""

_PRODUCTS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
_LIBRARIES = ("__cublas", "__cudnn", "__onednn", "cublas", "cudnn", "cusolver", "cusparse", "cufft", "lapack", "blas")
"""How the targets of custom calls into libraries begin."""
_SLICING = frozenset({"slice", "dynamic-slice", "gather"})
_VIEWS = frozenset({"bitcast", "get-tuple-element"})


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """One kernel of a program: an instruction of the entry, or of a loop's body, that XLA launches by itself."""

    name: str
    opcode: str
    launches: int
    """Per call of the program."""
    bytes: int
    """Read and written by all of those launches."""
    library: bool
    """Whether it is a matrix product, a convolution or another call into a library."""

    def __str__(self) -> str:
        return f"{self.name}: {self.opcode}, {self.launches:,} x, {self.bytes:,} B" + (
            ", library" if self.library else ""
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """The kernels that one call of a program launches, in order of first launch."""

    kernels: tuple[KernelTraffic, ...]
    unknown_trips: tuple[str, ...] = ()
    """Loops of unknown length, counted as one trip each."""

    @property
    def launches(self) -> int:
        """Return kernels launched per call, library calls included."""
        return sum(k.launches for k in self.kernels)

    @property
    def library_launches(self) -> int:
        """Return the number of launches that are library calls."""
        return sum(k.launches for k in self.kernels if k.library)

    @property
    def bytes(self) -> int:
        """Return bytes of device memory read and written per call."""
        return sum(k.bytes for k in self.kernels)

    def __str__(self) -> str:
        lines = [f"{self.launches:,} launches ({self.library_launches:,} of libraries), {self.bytes:,} bytes"]
        lines += [f"  {kernel}" for kernel in self.kernels]
        lines += [f"  {loop}: a loop of unknown length, counted as one trip" for loop in self.unknown_trips]
        return "\n".join(lines)


def traffic(text: str, unread: Callable[[Instruction], Sequence[str]] = lambda _: ()) -> Traffic:
    """Count on optimized HLO text of XLA:GPU or XLA:CPU, where each top-level instruction is a kernel (a thunk).

    Every launch reads each operand once and writes each result once, but of an operand that is only sliced or gathered
    from, what is taken, and of a result updated in place, the update. A loop's body and condition count once per trip,
    a conditional as its costliest branch, and a call that XLA:CPU compiles as one kernel as that. ``unread`` tells
    which operands of an instruction it has no use for: what makes but these is not counted. Raises
    ``hlo_parser.HloParseError``.
    """
    return traffic_of(hlo_parser.parse(text), unread)


def traffic_of(module: Module, unread: Callable[[Instruction], Sequence[str]] = lambda _: ()) -> Traffic:
    """Return the same of HLO that is parsed."""
    module = replace(module, computations=tuple(_read_only(c, unread) for c in module.computations))
    return _computation(module, module.entry)


def _read_only(computation: Computation, unread: Callable[[Instruction], Sequence[str]]) -> Computation:
    """Return a computation without operands that their instruction has no use for, and without what makes but these."""
    useless = {name for instruction in computation for name in unread(instruction)}
    if not useless:
        return computation
    kept: list[Instruction] = []
    read: set[str] = set()
    for instruction in reversed(computation.instructions):
        if instruction.name in useless and instruction.name not in read:
            useless.update(instruction.operands)
            continue
        own = unread(instruction)
        kept.append(replace(instruction, operands=tuple(o for o in instruction.operands if o not in own)))
        read.update(kept[-1].operands)
    return replace(computation, instructions=tuple(reversed(kept)))


def _computation(module: Module, computation: Computation) -> Traffic:
    """Return the traffic of one run of a computation whose instructions are launched one by one."""
    return _sum(_instruction(module, computation, instruction) for instruction in computation.instructions)


def _instruction(module: Module, computation: Computation, instruction: Instruction) -> Traffic:
    attributes = instruction.attributes
    match instruction.opcode:
        case _ if launches_nothing(instruction):
            return Traffic(())
        case "while":
            trip = _sum(_computation(module, module.computation(attributes[part])) for part in ("body", "condition"))
            trips = trip_count(module, computation, instruction)
            return _repeat(trip, trips) if trips is not None else _unknown(trip, instruction.name)
        case "conditional":
            branches = [_computation(module, module.computation(name)) for name in _branches(attributes)]
            return max(branches, key=lambda branch: (branch.launches, branch.bytes))
        case "call" | "call-start" if not is_one_kernel(instruction):
            return _computation(module, module.computation(attributes["to_apply"]))
        case "async-start":
            return _computation(module, module.computation(attributes["calls"]))
        case opcode:
            kernel = KernelTraffic(
                name=instruction.name,
                opcode=opcode,
                launches=1,
                bytes=_bytes(module, computation, instruction),
                library=is_library(module, instruction),
            )
            return Traffic((kernel,))


def _sum(parts: Iterable[Traffic]) -> Traffic:
    parts = list(parts)
    return Traffic(
        tuple(kernel for part in parts for kernel in part.kernels),
        tuple(loop for part in parts for loop in part.unknown_trips),
    )


def _repeat(trip: Traffic, trips: int) -> Traffic:
    kernels = (replace(k, launches=k.launches * trips, bytes=k.bytes * trips) for k in trip.kernels)
    return replace(trip, kernels=tuple(kernels))


def _unknown(trip: Traffic, name: str) -> Traffic:
    return replace(trip, unknown_trips=(*trip.unknown_trips, name))


def _branches(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    if "branch_computations" in attributes:
        return tuple(attributes["branch_computations"])
    return attributes["true_computation"], attributes["false_computation"]


def launches_nothing(instruction: Instruction) -> bool:
    """Return whether an instruction launches nothing: it names a value, or waits for one."""
    return instruction.opcode in _NO_LAUNCH or instruction.opcode.endswith(_WAITS)


def is_library(module: Module, instruction: Instruction) -> bool:
    """Return whether an instruction is a matrix product, a convolution or another call into a library."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode == "custom-call":
        return str(instruction.attributes.get("custom_call_target", "")).startswith(_LIBRARIES)
    if opcode == "fusion":
        return any(i.opcode in _PRODUCTS for i in module.computation(instruction.attributes["calls"]).instructions)
    return opcode in _PRODUCTS


def _bytes(module: Module, computation: Computation, instruction: Instruction) -> int:
    operands = dict.fromkeys(instruction.operands)  # An operand given twice is read once.
    if instruction.opcode in ("fusion", "fusion-start"):
        return _fusion_bytes(module.computation(instruction.attributes["calls"]), instruction)
    if instruction.opcode == "copy-start":  # Its result names the source and a context besides the copy.
        return 2 * sum(_size(computation[name].shape) for name in operands)
    read = sum(_read(computation, name, (instruction,)) for name in operands)
    return read + _written(computation, instruction)


def _fusion_bytes(fused: Computation, fusion: Instruction) -> int:
    users = _users(fused)
    read: dict[str, int] = {}
    for operand, parameter in zip(fusion.operands, fused.parameters, strict=True):
        size = _read(fused, parameter.name, tuple(users.get(parameter.name, ())), users)
        read[operand] = max(size, read.get(operand, 0))
    root = fused.root
    results = [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return sum(read.values()) + sum(_written(fused, result, fused=True) for result in results)


def _users(computation: Computation) -> dict[str, list[Instruction]]:
    users: dict[str, list[Instruction]] = {}
    for instruction in computation.instructions:
        for operand in dict.fromkeys(instruction.operands):
            users.setdefault(operand, []).append(instruction)
    return users


def _read(
    computation: Computation,
    name: str,
    uses: tuple[Instruction, ...],
    users: Mapping[str, list[Instruction]] | None = None,
) -> int:
    """Return bytes of the value ``name`` that these uses read; with ``users``, views of the value are looked
    through.
    """
    whole = _size(computation[name].shape)
    total = 0
    for use in uses:
        if use.opcode in _SLICING and use.operands[0] == name and name not in use.operands[1:]:
            total += _size(use.shape)
        elif use.opcode in ("dynamic-update-slice", "scatter") and name not in _read_operands(use):
            continue  # Updated in place.
        elif use.opcode in _VIEWS and users is not None and users.get(use.name):
            total += _read(computation, use.name, tuple(users[use.name]), users)
        else:
            return whole
    return min(total, whole)


def _read_operands(update: Instruction) -> tuple[str, ...]:
    """Return the operands of an update in place that are really read: all but the arrays that are updated."""
    if update.opcode == "dynamic-update-slice":
        return update.operands[1:]
    return update.operands[(len(update.operands) - 1) // 2 :]


def _written(computation: Computation, result: Instruction, fused: bool = False) -> int:
    """Return bytes that a kernel writes for a result; ``fused`` says that the result is one of a fused computation."""
    origin = _behind_bitcasts(computation, result)
    if fused and origin.opcode in ("dynamic-update-slice", "scatter"):
        # What the fusion itself made has to be written whole.
        if _behind_bitcasts(computation, computation[origin.operands[0]]).opcode != "parameter":
            return _size(result.shape)
    match origin.opcode:
        case "dynamic-update-slice":
            return _size(computation[origin.operands[1]].shape)
        case "scatter":
            updates = _read_operands(origin)[1:]
            return sum(_size(computation[name].shape) for name in updates)
        case "custom-call" if isinstance(origin.shape, TupleShape) and _has_workspace(origin):
            return sum(_size(element) for element in origin.shape.elements[:-1])
        case _:
            return _size(result.shape)


def _behind_bitcasts(computation: Computation, instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast":
        instruction = computation[instruction.operands[0]]
    return instruction


def _has_workspace(call: Instruction) -> bool:
    """Return whether the last result of a library call is scratch memory, of which nobody knows how much is used."""
    last = call.shape.elements[-1] if isinstance(call.shape, TupleShape) and call.shape.elements else None
    target = str(call.attributes.get("custom_call_target", ""))
    return (
        target.startswith(_LIBRARIES)
        and isinstance(last, ArrayShape)
        and (last.dtype, last.rank) in (("s8", 1), ("u8", 1))
    )


def _size(shape: Shape) -> int:
    return sum(array.bytes for array in _arrays(shape))


def _arrays(shape: Shape) -> Iterator[ArrayShape]:
    match shape:
        case ArrayShape():
            yield shape
        case TupleShape(elements):
            for element in elements:
                yield from _arrays(element)
