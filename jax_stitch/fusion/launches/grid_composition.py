"""Grid composition: a kernel that reads what another wrote joins its launch as a later phase, behind a barrier of all
blocks (AStitch, "global scheme").

Between two phases every block waits for all others, which costs less than the end of one launch and the start of the
next, and the launch itself is saved. A value that crosses the barrier is in memory, in L2 where it is small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.reach import Reach
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.buffers import buffers_fit
from jax_stitch.graph.model import Graph


def compose(
    groups: Sequence[Sequence[Pattern]], between: Graph, at: Sequence[int], device: Device
) -> list[list[Pattern]]:
    """Return groups of patterns, each a kernel, with those joined that only memory keeps apart. ``between`` is the
    graph of the groups and of all else, in which they are the nodes ``at``.

    On a CPU, where a launch costs no more than such a barrier, they stay what they are.
    """
    joined = [list(group) for group in groups]
    if not device.target.packs_launches:
        return joined
    reach = Reach(between)
    reads = [{i for p in group for i in p.inputs} for group in joined]
    writes = [{i for p in group for i in p.outputs} for group in joined]
    readers: dict[int, set[int]] = defaultdict(set)
    for k, inputs in enumerate(reads):
        for i in inputs:
            readers[i].add(k)
    gone: set[int] = set()
    k = 0
    while k < len(joined):
        others = set[int]().union(*(readers[i] for i in writes[k])) if k not in gone else ()
        for other in sorted(others):
            # It reads what this one writes, and nothing outside both stands between them.
            if other == k:
                continue
            both = reach.bits_of(at[k]) | reach.bits_of(at[other])
            if reach.all_after([at[k]]) & reach.all_before([at[other]]) & ~both:
                continue
            if buffers_fit([*joined[k], *joined[other]], device):
                reach = reach.contracted([at[k], at[other]])
                joined[k] += joined[other]
                writes[k] |= writes[other]
                for i in reads[other]:
                    readers[i] = readers[i] - {other} | {k}
                reads[k] |= reads[other]
                gone.add(other)
                break
        else:
            k += 1
    return [group for k, group in enumerate(joined) if k not in gone]


def in_phases(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Return the patterns of a kernel, each in the first phase in which all that it reads has been written, in the
    order of phases.
    """
    writer = {i: k for k, p in enumerate(patterns) for i in p.outputs}
    phases: dict[int, int] = {}

    def phase(k: int) -> int:
        if k not in phases:
            earlier = {writer[i] for i in patterns[k].inputs if i in writer} - {k}
            phases[k] = max((phase(e) + 1 for e in earlier), default=0)
        return phases[k]

    placed = [replace(p, phase=phase(k)) for k, p in enumerate(patterns)]
    return tuple(sorted(placed, key=lambda p: p.phase))


def split_to_fit(kernel: Sequence[Pattern], device: Device) -> list[tuple[Pattern, ...]]:
    """Return a kernel in phases; as several where choosing what it reads has left it with more buffers than one may
    have.
    """
    if len(kernel) == 1 or not device.target.packs_launches or buffers_fit(kernel, device):
        return [in_phases(kernel)]
    last = kernel[-1].phase
    if last:
        parts = [p for p in kernel if p.phase < last], [p for p in kernel if p.phase == last]
    else:
        parts = list(kernel[: len(kernel) // 2]), list(kernel[len(kernel) // 2 :])
    return [piece for part in parts for piece in split_to_fit(in_phases(part), device)]
