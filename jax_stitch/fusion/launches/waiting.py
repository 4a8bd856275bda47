"""Launches in which no block waits for another: beside NCCL's kernels nobody knows how many blocks run together.

A kernel of a collective holds multiprocessors until those on other devices have come, which wait for a multiprocessor
that blocks of ours hold while they wait for those that found none. What follows in further phases is then a launch of
its own, or so little that the block which arrives last does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.traffic import MOST_LAST_BLOCK_BYTES, moved_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.launches.grid_composition import in_phases
from jax_stitch.graph.model import Graph

Kernel = tuple[Pattern, ...]


def none_waits(graph: Graph, kernels: Sequence[Kernel], device: Device) -> tuple[Kernel, ...]:
    """Return the kernels, cut into launches where blocks would wait for each other and the device does not let them."""
    if device.blocks_may_wait:
        return tuple(kernels)
    return tuple(piece for kernel in kernels for piece in _pieces(graph, kernel))


def _pieces(graph: Graph, kernel: Kernel) -> list[Kernel]:
    """Return the phases of the kernel, each with those after it that one block does alone."""
    pieces: list[list[Pattern]] = []
    alone = 0.0
    for number in sorted({p.phase for p in kernel}):
        phase = [p for p in kernel if p.phase == number]
        alone += sum(_moved(graph, p) for p in phase)
        if not pieces or alone > MOST_LAST_BLOCK_BYTES:
            pieces.append(phase)
            alone = 0.0
        else:
            pieces[-1] += phase
    return [in_phases(piece) for piece in pieces]


def _moved(graph: Graph, pattern: Pattern) -> float:
    return inf if pattern.loop is not None else moved_bytes(graph, pattern)
