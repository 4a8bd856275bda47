"""``argmax`` and ``argmin`` as an extremum and the least index of what equals it, with what XLA takes for the pairs."""

from __future__ import annotations

from collections.abc import Mapping

from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.devices import Device
from jax_stitch.fusion.delta_evaluator import as_calls
from jax_stitch.fusion.pays import SHARED_BYTES
from jax_stitch.graph.model import Graph, Node
from jax_stitch.graph.rewrites.extrema import with_extrema
from jax_stitch.loops.cost.xla_cost import SUMMED_SEVERAL


def first_extrema(graph: Graph, device: Device) -> Graph:
    """Return the graph with its reductions of pairs expanded, and marked with how many launches last as long as XLA's
    reduction.
    """

    def marks(values: Node) -> Mapping[str, int]:
        cores = device.multiprocessors if node_bytes(values) >= SHARED_BYTES else 1
        return as_calls(values.tensor.size * SUMMED_SEVERAL / cores, device)

    return with_extrema(graph, marks)
