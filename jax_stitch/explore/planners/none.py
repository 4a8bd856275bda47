"""No planner: everything is left to XLA, to compare with."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.explore.loops.thread_loops import ThreadLoops
from jax_stitch.explore.outcome import Outcome
from jax_stitch.graph.model import Graph


def choose(graph: Graph, loops: ThreadLoops, device: Device) -> Outcome:
    """No pattern at all."""
    del device
    return Outcome(graph, (), loops.patterns, loops.refused, 0.0, {i: i for i in range(len(graph))})
