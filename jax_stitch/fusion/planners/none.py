"""No planner: everything is left to XLA, to compare with."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.fusion.outcome import Outcome
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.graph.model import Graph
from jax_stitch.loops.thread_loops import ThreadLoops


def choose(graph: Graph, loops: ThreadLoops, device: Device, patience: Patience = ENDLESS) -> Outcome:
    """Choose no pattern at all."""
    del device
    return Outcome(graph, (), loops.patterns, loops.refused, 0.0, {i: i for i in range(len(graph))})
