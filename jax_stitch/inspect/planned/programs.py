"""Kernels over operations: what each reads and writes, and how its bytes and its time spread over what it computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jax_stitch.devices import Device
from jax_stitch.frontend.capture.traffic import Traffic
from jax_stitch.inspect.planned.final import FinalKernels
from jax_stitch.inspect.planned.model import NOWHERE, Kind, Operation, Program, ProgramKernel, Transfer
from jax_stitch.inspect.planned.names import title
from jax_stitch.latency.constants import constants_of

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import KernelPlan, Plan

_VIEWS = frozenset({"reshape", "transpose", "get-tuple-element"})
_SLICES = frozenset({"slice", "dynamic-slice", "gather"})
_BODIES = frozenset({"while", "conditional", "call"})


@dataclass(frozen=True)
class Accesses:
    """What kernels move through memory, for some choice of kernels."""

    weights: tuple[float, ...]
    """For each operation, the bytes that it reads of other kernels and writes for them."""
    transfers: tuple[Transfer, ...]


def accesses(operations: Sequence[Operation], kernel_of: Sequence[int], kernels: Sequence[ProgramKernel]) -> Accesses:
    """Return the bytes that operations move: a kernel reads each value once, by the first operation that needs it, and
    writes it once. It does not read what it computes itself, even if that has the colour of another kernel.
    """
    launches = [k.launches for k in kernels]
    inside = [frozenset(k.members) for k in kernels]
    weights = [0.0] * len(operations)
    moved: dict[tuple[int, int], int] = defaultdict(int)
    seen: set[tuple[int, int]] = set()
    written: dict[int, set[int]] = defaultdict(set)
    for i, operation in enumerate(operations):
        if operation.result:
            written[_origin(operations, i)].add(i)
        if operation.free:
            continue
        own = kernel_of[i]
        for operand in operation.operands:
            origin = _origin(operations, operand)
            if _needs_no_memory(operations[origin]) or (own != NOWHERE and origin in inside[own]):
                continue
            written[origin].add(operand)
            if own == NOWHERE or (origin, own) in seen:
                continue
            seen.add((origin, own))
            size = operations[operand].bytes
            if operation.op in _SLICES:
                size = min(size, operation.bytes * _trips(operation, launches[own]))
            weights[i] += size
            moved[kernel_of[origin], own] += size
    for i, parts in written.items():
        if (own := kernel_of[i]) != NOWHERE:
            weights[i] += _written(operations, i, parts, launches[own])
    return Accesses(tuple(weights), tuple(Transfer(p, c, n) for (p, c), n in moved.items()))


def _trips(operation: Operation, launches: int) -> int:
    return max(1, operation.trips // max(1, launches))


def _origin(operations: Sequence[Operation], i: int) -> int:
    """Return what a view is a view of."""
    while operations[i].free and operations[i].op in _VIEWS:
        i = operations[i].operands[0]
    return i


def _needs_no_memory(operation: Operation) -> bool:
    return operation.free and operation.op != "parameter"


def _written(operations: Sequence[Operation], i: int, parts: Collection[int], launches: int) -> int:
    """Return what a launch writes of a value; ``parts`` are the elements of a loop's results that somebody reads."""
    operation = operations[i]
    if operation.op == "dynamic-update-slice":  # in place
        return min(operation.bytes, operations[operation.operands[1]].bytes * _trips(operation, launches))
    return sum(operations[p].bytes for p in parts) if operation.op in _BODIES else operation.bytes


def before(operations: Sequence[Operation], final: FinalKernels, traffic: Traffic, device: Device) -> Program:
    """Return XLA's final program."""
    number = {k.name: n for n, k in enumerate(traffic.kernels)}
    members: dict[int, list[int]] = defaultdict(list)
    kernel_of = [NOWHERE] * len(operations)
    recognised = final.recognise(operations, number)
    for i, names in recognised.of.items():
        for name in names:
            members[number[name]].append(i)
        kernel_of[i] = number[names[0]]
    split = {number[name]: own for name, own in recognised.parts.items()}
    members |= split
    apart = {i for own in split.values() for i in own}  # whose arithmetic is in the first step
    kernels: list[ProgramKernel] = []
    for n, row in enumerate(traffic.kernels):
        kind: Kind = "library" if row.library else "xla"
        flops = sum(operations[i].flops for i in members[n] if n in split or i not in apart)
        seconds = _predicted(row.bytes, flops, row.launches, row.library, device)
        kernels.append(ProgramKernel(row.name, "", kind, row.launches, row.bytes, flops, seconds, tuple(members[n])))
    program = _finished(operations, kernels, kernel_of)
    flows = [(number.get(p, NOWHERE), number[c], n) for p, c, n in final.flows if c in number]
    each = [k.bytes // max(1, k.launches) for k in kernels]
    return replace(program, transfers=tuple(Transfer(p, c, min(n, each[c])) for p, c, n in flows))


def after(
    operations: Sequence[Operation], results: Sequence[int], plan: Plan, xla: Program, final: FinalKernels
) -> Program:
    """Return the stitched program: the plan's kernels, and what they leave of XLA's; ``results`` are the program's."""
    plans, device, traffic = plan.kernels, plan.device, plan.stitched_traffic
    # A rewriting names what it makes of a product after it: the product itself is where the plan says.
    left_out = {(b.instruction, b.op) for b in plan.boundaries}
    outside = {i for i, o in enumerate(operations) if (o.name.partition("#")[0], o.op) in left_out}
    kernel_of, members = _taken(operations, plans, outside)
    _absorb(operations, plans, kernel_of, members)
    replaced, shared = _replaced(xla, kernel_of, len(plans))
    _add_silent(operations, results, xla, final, kernel_of, replaced)
    kernels: list[ProgramKernel] = []
    for n, own in enumerate(plans):
        flops = sum(operations[i].flops for i in members[n] if kernel_of[i] == n)
        moved = own.launches * (own.bytes_read + own.bytes_written)
        each = _predicted(moved, flops, own.launches, False, device)
        seconds = each if own.latency is None else own.launches * own.latency.seconds
        made = ProgramKernel(own.name, "", "stitched", own.launches, moved, flops, seconds, tuple(members[n]))
        kernels.append(replace(made, replaces=tuple(replaced[n]), shares=tuple(shared[n])))
    left: dict[int, list[int]] = defaultdict(list)
    for i, k in enumerate(xla.kernel_of):
        if kernel_of[i] == NOWHERE and k != NOWHERE:
            left[k].append(i)
    whole = {xla.kernels[k].name for k in left if all(kernel_of[i] == NOWHERE for i in xla.kernels[k].members)}
    for k in sorted(left):
        for i in left[k]:
            kernel_of[i] = len(kernels)
        kernels.append(replace(xla.kernels[k], members=tuple(left[k]), title=""))
    partial = [n for n, k in enumerate(kernels) if k.kind != "stitched" and k.name not in whole]
    kernels = _rest(operations, kernels, kernel_of, partial, device)
    return _finished(operations, [*kernels, *_others(kernels, traffic, device)], kernel_of)


def _others(kernels: Sequence[ProgramKernel], traffic: Traffic, device: Device) -> Iterator[ProgramKernel]:
    """Yield what the stitched program launches besides, by count: copies and the like, which are no operation's."""
    launches = traffic.launches - sum(k.launches for k in kernels)
    if launches > 0:
        moved = max(0, traffic.bytes - sum(k.bytes for k in kernels))
        seconds = _predicted(moved, 0, launches, False, device)
        yield ProgramKernel("copies and others", "", "xla", launches, moved, 0, seconds, ())


def _rest(
    operations: Sequence[Operation],
    kernels: Sequence[ProgramKernel],
    kernel_of: Sequence[int],
    partial: Sequence[int],
    device: Device,
) -> list[ProgramKernel]:
    """Return the kernels, of which stitching took a part of some: with what the rest of these moves."""
    counted = list(kernels)
    weights = accesses(operations, kernel_of, kernels).weights if partial else ()
    for n in partial:
        k = kernels[n]
        moved = round(k.launches * sum(weights[i] for i in k.members))
        flops = sum(operations[i].flops for i in k.members)
        seconds = _predicted(moved, flops, k.launches, k.kind == "library", device)
        counted[n] = replace(k, bytes=moved, flops=flops, seconds=seconds)
    return counted


def _taken(
    operations: Sequence[Operation], plans: Sequence[KernelPlan], outside: Collection[int]
) -> tuple[list[int], list[list[int]]]:
    """Return the stitched kernel of each operation, and all operations of each: those of a whole loop's body are in
    it.
    """
    by_name: dict[str, list[int]] = defaultdict(list)
    for i, operation in enumerate(operations):
        by_name[operation.name.partition("#")[0]].append(i)
    inside: dict[int, list[int]] = defaultdict(list)
    for i, operation in enumerate(operations):
        if operation.parent != NOWHERE:
            inside[operation.parent].append(i)
    kernel_of = [NOWHERE] * len(operations)
    members: list[list[int]] = []
    for n, plan in enumerate(plans):
        waiting = [i for name in dict.fromkeys(plan.ops) for i in by_name.get(name, ())]
        own: dict[int, None] = {}
        while waiting:
            i = waiting.pop()
            if i in outside:
                continue
            waiting += inside[i]
            if not operations[i].free and i not in own:
                own[i] = None
                if kernel_of[i] == NOWHERE:
                    kernel_of[i] = n
        members.append(sorted(own))
    return kernel_of, members


def _absorb(
    operations: Sequence[Operation], plans: Sequence[KernelPlan], kernel_of: list[int], members: Sequence[list[int]]
) -> None:
    """Give operations that only stitched kernels need, which compute them for themselves, to these: XLA has no kernel
    for them any more.
    """
    copied: dict[str, set[int]] = defaultdict(set)
    for n, plan in enumerate(plans):
        for name in plan.copies:
            copied[name].add(n)
    for i, k in enumerate(kernel_of):
        if k != NOWHERE:
            copied[operations[i].name.partition("#")[0]].add(k)
    readers: list[set[int]] = [set() for _ in operations]
    for i in reversed(range(len(operations))):
        operation = operations[i]
        if operation.result:
            readers[i].add(NOWHERE)
        own = readers[i] if operation.free else {kernel_of[i]}
        if kernel_of[i] == NOWHERE and not operation.free:
            known = copied[operation.name.partition("#")[0]]
            if readers[i] and readers[i] <= known:
                own = readers[i]
                kernel_of[i] = min(own)
                for k in own:
                    members[k].append(i)
        for o in operation.operands:
            readers[o] |= own
    for own_members in members:
        own_members.sort()


def _add_silent(
    operations: Sequence[Operation],
    results: Sequence[int],
    xla: Program,
    final: FinalKernels,
    kernel_of: Sequence[int],
    replaced: Sequence[list[int]],
) -> None:
    """Count kernels of XLA that are no operation's among those that are gone, where all that they serve is: copies of a
    loop's carry, a loop's condition, the steps that XLA does a scan in, which have no name of it.
    """
    made: dict[str, list[int]] = defaultdict(list)
    """For what makes a result of XLA's program, the stitched kernels that make these results."""
    for i, names in zip(results, final.results, strict=False):
        for name in names:
            made[name].append(kernel_of[_origin(operations, i)])
    taker = {xla.kernels[b].name: n for n, own in enumerate(replaced) for b in own}
    for i, o in enumerate(operations):
        if o.op in _BODIES and kernel_of[i] != NOWHERE:
            taker[o.name] = kernel_of[i]
    silent = [b for b, k in enumerate(xla.kernels) if not k.members]
    for b in reversed(silent):  # What serves another silent kernel comes before it.
        name = xla.kernels[b].name
        takers = [taker.get(served, NOWHERE) for served in final.served.get(name, ())] + made[name]
        if takers and NOWHERE not in takers:
            replaced[takers[0]].append(b)
            taker[name] = takers[0]
    for own in replaced:
        own.sort()


def _replaced(xla: Program, kernel_of: Sequence[int], count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return, for each stitched kernel, the kernels of XLA that are gone with it, and those that it has only a part of.

    One that several stitched kernels take apart is gone with the one that has most of its bytes.
    """
    replaced: list[list[int]] = [[] for _ in range(count)]
    shared: list[list[int]] = [[] for _ in range(count)]
    for b, kernel in enumerate(xla.kernels):
        parts: dict[int, float] = defaultdict(float)
        for i in kernel.members:
            parts[kernel_of[i]] += 1e-9 + (xla.op_bytes[i] if xla.kernel_of[i] == b else 0.0)
        takers = [k for k in parts if k != NOWHERE]
        if not takers:
            continue
        main = max(takers, key=lambda k: parts[k])
        for k in takers:
            (replaced if k == main and NOWHERE not in parts else shared)[k].append(b)
    return replaced, shared


def _finished(
    operations: Sequence[Operation],
    kernels: Sequence[ProgramKernel],
    kernel_of: Sequence[int],
) -> Program:
    """Return kernels with their names, and each one's bytes spread over its operations."""
    traffic = accesses(operations, kernel_of, kernels)
    moved, taken = [0.0] * len(operations), [0.0] * len(operations)
    named: list[ProgramKernel] = []
    for n, kernel in enumerate(kernels):
        # The first step of an operation in two has the colour of none, and its costs are that operation's.
        own = [i for i in kernel.members if kernel_of[i] == n] or list(kernel.members)
        read_written = [traffic.weights[i] for i in own]
        computed = [float(max(o.flops, o.trips)) for o in (operations[i] for i in own)]
        for i, byte_share, work_share in zip(own, _shares(read_written), _shares(computed), strict=True):
            moved[i] += kernel.bytes * byte_share
            taken[i] += kernel.seconds * (byte_share + work_share) / 2
        weighed = [(operations[i], traffic.weights[i]) for i in kernel.members]
        stitched = kernel.kind == "stitched"  # XLA's are counted as reading each operand once: there is no other figure
        bound = min(kernel.bytes, round(kernel.launches * sum(read_written))) if stitched else 0
        named.append(replace(kernel, title=title(weighed, kernel.name), bound=bound))
    return Program(tuple(named), tuple(kernel_of), traffic.transfers, tuple(moved), tuple(taken))


def _shares(weights: Sequence[float]) -> list[float]:
    """Return parts of one; equal ones where there is nothing to go by."""
    total = sum(weights)
    return [w / total if total else 1 / len(weights) for w in weights]


def _predicted(moved: int, flops: int, launches: int, library: bool, device: Device) -> float:
    """Return seconds of a kernel that nothing is known of but its bytes: V / B(V) and a launch; of a library's besides
    at least its arithmetic at the device's peak.
    """
    known = constants_of(device)
    each = moved / max(1, launches)
    seconds = each / known.bandwidth(max(1.0, each))
    if library:
        seconds = max(seconds, flops / max(1, launches) / peak_flops(device))
    return launches * (known.launch + seconds)


def peak_flops(device: Device) -> float:
    """Return f32 operations per second, a multiply and an add counted as two."""
    return 2.0 * device.fp32_lanes * device.multiprocessors * device.clock_ghz * 1e9
