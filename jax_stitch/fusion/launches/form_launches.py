"""From chosen patterns to kernels: packed into launches, composed in phases, with what each reads settled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.inputs_outputs import inputs_of
from jax_stitch.analysis.results import Results
from jax_stitch.analysis.support import is_rematerializable
from jax_stitch.devices import Device
from jax_stitch.fusion import region
from jax_stitch.fusion.delta_evaluator import XlaKernels
from jax_stitch.fusion.launches.grid_composition import in_phases, split_to_fit
from jax_stitch.fusion.launches.independent import apart
from jax_stitch.fusion.launches.leftover_kernels import long_totals, worth_packing
from jax_stitch.fusion.launches.loops_in_phases import with_loops
from jax_stitch.fusion.launches.packing import Kernel, pack
from jax_stitch.fusion.launches.profitable import worth_a_launch
from jax_stitch.fusion.launches.quotient import can_be_launched
from jax_stitch.fusion.launches.recompute import choose_reads
from jax_stitch.fusion.launches.shared_calls import in_company
from jax_stitch.fusion.launches.view_outputs import written_once
from jax_stitch.fusion.launches.waiting import none_waits
from jax_stitch.fusion.outcome import Outcome
from jax_stitch.graph.model import Graph
from jax_stitch.ir.pattern import Pattern

_kernels: Results[tuple[Outcome, Device, bool], tuple[Kernel, ...]] = Results()


def kernels_of(outcome: Outcome, device: Device, packs: bool) -> tuple[Kernel, ...]:
    """The kernels of what a planner has chosen; without ``packs`` its groups of patterns are the launches.

    Which values kernels read is chosen once they are known; what XLA would then have to make for them is packed too.
    Asked again of the outcome that is taken: kept while its graph is planned.
    """
    key = outcome, device, packs
    return _kernels.get(outcome.graph, key, lambda: _kernels_of(outcome, device, packs))


def _kernels_of(outcome: Outcome, device: Device, packs: bool) -> tuple[Kernel, ...]:
    read: set[int] = set()
    while True:
        packed = _packed(outcome, device, read) if packs else outcome.groups
        with_reads = _with_reads(outcome.graph, packed, outcome.loops, device)
        left = _left_for(outcome, with_reads) - read if packs and device.target.packs_launches else set()
        if not left:
            break
        read |= left
    chosen_reads = _launchable(outcome.graph, with_reads)
    kernels = tuple(piece for kernel in chosen_reads for piece in split_to_fit(in_phases(kernel), device))
    together = with_loops(outcome.graph, outcome.loops, kernels, device)
    return written_once(outcome.graph, none_waits(outcome.graph, together, device), device)


def _launchable(graph: Graph, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels, less those that would wait for themselves: by a value that too many places of one read, which XLA
    makes of what another writes.
    """
    if can_be_launched(graph, kernels):
        return kernels
    # What has partial results cannot be left to XLA by itself.
    bound = [k for k in kernels if any(graph[i].op == PARTIAL for p in k for i in (*p.nodes, *p.inputs))]
    kept = list(bound)
    for kernel in kernels:
        if kernel not in bound and can_be_launched(graph, [*kept, kernel]):
            kept.append(kernel)
    return tuple(k for k in kernels if k in kept)


def _left_for(outcome: Outcome, kernels: Sequence[Kernel]) -> set[int]:
    """What XLA would have to make for these kernels, which read it."""
    graph, patterns = outcome.graph, [*(p for kernel in kernels for p in kernel), *outcome.loops]
    made = {i for p in patterns for i in p.nodes}
    read = {i for p in patterns for i in p.inputs} - made
    return {i for i in read if graph[i].kernel and not is_rematerializable(graph[i]) and i not in outcome.refused}


def _packed(outcome: Outcome, device: Device, read: Collection[int]) -> tuple[Kernel, ...]:
    graph, origins = outcome.graph, XlaKernels(outcome.graph)
    patterns = [p for group in outcome.groups for p in group]
    chosen = [piece for p in patterns for piece in worth_a_launch(graph, apart(graph, p), device)]
    small = worth_packing(graph, [*chosen, *outcome.loops], outcome.refused, read, device)
    if not device.target.packs_launches:
        return tuple((p,) for p in [*chosen, *in_company(graph, [*chosen, *outcome.loops], small, device)])
    return pack(graph, origins, chosen, small, outcome.loops, device)


def _with_reads(graph: Graph, packed: Sequence[Kernel], loops: Sequence[Pattern], device: Device) -> tuple[Kernel, ...]:
    """The kernels with what they read chosen: of values that their text would compute in too many places, and of long
    totals that one of them makes, reading.
    """
    if device.target.packs_launches:
        read = {i for kernel in packed for p in kernel for i in long_totals(graph, p.nodes)}
    else:
        inside = {i for p in loops for i in p.nodes}
        read = long_totals(graph, [n.id for n in graph.nodes if n.id not in inside])
    while True:
        kernels, gone = _reads_chosen(graph, packed, loops, device, read)
        long = {i for kernel in kernels for p in kernel for i in region.copied_too_often(graph, p)} - read
        if not long:
            return _owning(kernels, gone)
        read |= long


def _reads_chosen(
    graph: Graph, packed: Sequence[Kernel], loops: Sequence[Pattern], device: Device, read: Collection[int]
) -> tuple[tuple[Kernel, ...], set[int]]:
    """The kernels with what they read chosen, less what nobody reads any more of their patterns; and that.

    What those computed others make for themselves: left to XLA it might stand between two patterns of one kernel.
    """
    gone: set[int] = set()
    while True:
        chosen = iter(choose_reads(graph, [p for kernel in packed for p in kernel], loops, device, gone, read))
        kernels = tuple(tuple(next(chosen) for _ in kernel) for kernel in packed)
        unread = {i for kernel in kernels for p in kernel for i in p.nodes - _of_use(graph, p)}
        if not unread:
            return kernels, gone
        gone |= unread
        rest = [[_less(graph, p, unread) for p in kernel if not p.nodes <= unread] for kernel in packed]
        packed = tuple(tuple(kernel) for kernel in rest if kernel)


def _of_use(graph: Graph, pattern: Pattern) -> set[int]:
    """What the outputs of a pattern are computed from, of what it computes."""
    inside, of_use, waiting = pattern.inside, set[int](), list(pattern.outputs)
    while waiting:
        i = waiting.pop()
        if i in inside and i not in of_use:
            of_use.add(i)
            waiting += graph[i].operands
    return of_use


def _less(graph: Graph, pattern: Pattern, unread: Collection[int]) -> Pattern:
    """A pattern without what nobody reads of it."""
    if pattern.nodes.isdisjoint(unread):
        return pattern
    nodes = pattern.nodes.difference(unread)
    return replace(pattern, nodes=nodes, inputs=inputs_of(graph, nodes))


def _owning(kernels: Sequence[Kernel], gone: set[int]) -> tuple[Kernel, ...]:
    """The kernels with what dropped patterns computed as a part of the first that rematerialises it: nobody else
    has it, and between two patterns of one kernel it would stand as if the kernel waited for itself.
    """
    left = set(gone)
    owning = []
    for kernel in kernels:
        patterns = []
        for p in kernel:
            mine = p.copies & left
            left -= mine
            patterns.append(replace(p, nodes=p.nodes | mine, copies=p.copies - mine) if mine else p)
        owning.append(tuple(patterns))
    return tuple(owning)
