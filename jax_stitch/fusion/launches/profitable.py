"""Patterns that are kernels by themselves, on a device where no two share a launch."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import Gain, XlaKernels, evaluate
from jax_stitch.graph.model import Graph


def worth_a_launch(graph: Graph, pieces: Sequence[Pattern], device: Device) -> list[Pattern]:
    """Return the pieces of one pattern, less those that have nothing left to save once they are kernels by themselves.

    Together they did the work of several kernels of XLA. A piece that does the work of a single one, on the same bytes,
    only loses: XLA writes its result where an operand was that nobody reads any more, ours is in new memory, whose
    first touch takes longer than the work.
    """
    if len(pieces) == 1 or device.target.packs_launches:  # On a GPU the pieces share a launch.
        return list(pieces)
    origins = XlaKernels(graph)
    return [p for p in pieces if _saves(evaluate(graph, origins, p, device), device)]


def _saves(gain: Gain, device: Device) -> bool:
    return gain.merged > 1 or gain.memory - gain.penalty > 2 * device.target.launch_seconds
