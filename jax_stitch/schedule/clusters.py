"""Thread-block clusters: which parts of which kernels several blocks may take row by row.

Each block of a cluster has its own lanes' places, and results of reductions are all that goes from block to block.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.traffic import may_have_clusters
from jax_stitch.devices import Device
from jax_stitch.graph.model import Graph
from jax_stitch.schedule.model import LoopPass, OncePass, RowPass


class Clusters(Struct, frozen=True):
    """How many blocks are ``wanted`` for each row of a part, and the ``most`` that there may be."""

    wanted: int = 1
    most: int = 1


NONE = Clusters()


def clusters_of(graph: Graph, kernel: Sequence[Pattern], device: Device, wanted: int) -> Clusters:
    """Return the clusters that the first pattern of a kernel may have; the others have none."""
    if not may_have_clusters(graph, kernel):
        return NONE
    return Clusters(min(wanted, device.cluster_blocks), device.cluster_blocks)


def meet_in_reductions(passes: Sequence[RowPass]) -> bool:
    """Return whether the lanes of a row, which could be in several blocks, meet in nothing but reductions of all of
    it.
    """
    loops = [s for s in passes if isinstance(s, LoopPass)]
    return (
        all(isinstance(s, LoopPass | OncePass) for s in passes)
        and any(s.reduces for s in loops)
        and not any(s.scans for s in loops)
    )
