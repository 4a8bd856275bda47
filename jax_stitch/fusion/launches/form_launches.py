"""Forming of kernels from chosen patterns: packed into launches, composed in phases, with each one's reads settled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from jax_stitch.analysis.accesses import PARTIAL
from jax_stitch.analysis.inputs_outputs import inputs_of
from jax_stitch.analysis.patterns.pattern import Pattern
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

_kernels: Results[tuple[Outcome, Device, bool], tuple[Kernel, ...]] = Results()


def kernels_of(outcome: Outcome, device: Device, packs: bool) -> tuple[Kernel, ...]:
    """Return the kernels of a planner's outcome; without ``packs`` its groups of patterns are the launches.

    The values that kernels read are chosen once the kernels are known; values that XLA would then have to compute for
    them are packed too. The result is cached while the graph is planned.
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
    """Return the kernels without those that would close a dependence cycle: a kernel reads a value, instead of
    recomputing it at too many places, that XLA computes from another kernel's result.
    """
    if can_be_launched(graph, kernels):
        return kernels
    # XLA cannot take over a kernel with partial results alone.
    bound = [k for k in kernels if any(graph[i].op == PARTIAL for p in k for i in (*p.nodes, *p.inputs))]
    kept = list(bound)
    for kernel in kernels:
        if kernel not in bound and can_be_launched(graph, [*kept, kernel]):
            kept.append(kernel)
    return tuple(k for k in kernels if k in kept)


def _left_for(outcome: Outcome, kernels: Sequence[Kernel]) -> set[int]:
    """Return the values that these kernels read and that XLA would have to compute for them."""
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
    """Return the kernels with their reads chosen. They read values that their text would compute in too many places,
    and long totals that one of them computes.
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
    """Return the kernels with their reads chosen, without values of their patterns that lost all readers; and these.

    Other patterns rematerialise such values: computed by XLA, they might stand between two patterns of one kernel.
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
    """Return the nodes of a pattern that its outputs depend on."""
    inside, of_use, waiting = pattern.inside, set[int](), list(pattern.outputs)
    while waiting:
        i = waiting.pop()
        if i in inside and i not in of_use:
            of_use.add(i)
            waiting += graph[i].operands
    return of_use


def _less(graph: Graph, pattern: Pattern, unread: Collection[int]) -> Pattern:
    """Return a pattern without its unread nodes."""
    if pattern.nodes.isdisjoint(unread):
        return pattern
    nodes = pattern.nodes.difference(unread)
    return replace(pattern, nodes=nodes, inputs=inputs_of(graph, nodes))


def _owning(kernels: Sequence[Kernel], gone: set[int]) -> tuple[Kernel, ...]:
    """Return the kernels with each dropped node owned by the first pattern that rematerialises it. Without an owner, it
    would stand between two patterns of one kernel, as if the kernel waited for itself.
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
