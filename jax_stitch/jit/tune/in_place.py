"""Kernels told to write their outputs over inputs that the program has no more use for: donated arguments, what a loop
carries, and what is only on the way.

The custom call says so to XLA, which otherwise copies such an array before the kernel or after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jax_stitch.emit import KernelSource, Reuse, emit
from jax_stitch.frontend.replay import Segment, StitchedGraph, spent
from jax_stitch.fusion import FusionPlan
from jax_stitch.jit.tune.units import by_graph, numbered
from jax_stitch.pipeline import Stitched, StitchedKernel, segment


def in_place(stitched: Stitched) -> Stitched:
    """Return ``stitched`` with its kernels' outputs written in place if the program and the kernel allow it."""
    of: dict[Segment, StitchedKernel] = {}
    graph = _graph(stitched.plan, by_graph(stitched.kernels), of)
    found = spent(graph, stitched.capture.homes, may_wait=stitched.device.target.is_host)
    wanted = {of[s].number: tuple(Reuse(p.input, p.output, p.twins) for p in pairs) for s, pairs in found.items()}
    if not wanted:
        return stitched
    after = {of[s].number: tuple(dict.fromkeys(v for p in pairs for v in p.after)) for s, pairs in found.items()}
    known: dict[tuple[int, tuple[Reuse, ...]], KernelSource] = {}
    kernels = [replace(k, reuses=wanted.get(k.number, ()), after=after.get(k.number, ())) for k in stitched.kernels]
    return replace(stitched, kernels=numbered([_made(k, known) for k in kernels]))


def _made(kernel: StitchedKernel, known: dict[tuple[int, tuple[Reuse, ...]], KernelSource]) -> StitchedKernel:
    """Return the kernel with the text that writes in place: kernels that have one text, and may write over the same,
    have one then too."""
    if not kernel.reuses:
        return kernel
    key = id(kernel.source), kernel.reuses
    if key not in known:
        known[key] = emit(kernel.scheduled, kernel.reuses, kernel.source)
    return replace(kernel, source=known[key])


def _graph(
    plan: FusionPlan, kernels: Mapping[int, Sequence[StitchedKernel]], of: dict[Segment, StitchedKernel]
) -> StitchedGraph:
    segments = []
    for kernel in kernels.get(id(plan.graph), ()):
        segments.append(segment(kernel, _nobody))
        of[segments[-1]] = kernel
    children = {key: _graph(child, kernels, of) for key, child in plan.children.items()}
    return StitchedGraph(plan.graph, tuple(segments), children)


def _nobody(kernel: StitchedKernel, arrays: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError(f"{kernel.source.name} is not to run")
