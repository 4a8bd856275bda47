"""What the explorer produces: fusion patterns, how they pack into kernels, and where stitching stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import Struct

from jax_stitch.analysis.binding import Binding
from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.graph.model import Graph

Loop = Nest | TeamLoop
"""Loops, with what is around them, whose rows run in one thread each, or a loop whose rows teams of threads run."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Nodes that become one part of a kernel: all of them are local under one split of the work into ``rows`` rows.

    ``bindings`` holds, for every node and input that covers all rows, which part of its index is the row number.
    ``inputs`` are the values the part reads, ``outputs`` those it writes. ``blocks`` is the number of blocks where the
    pattern holds partial reductions (their first dimension), else ``None``.
    """

    nodes: frozenset[int]
    rows: int
    bindings: Mapping[int, Binding]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    blocks: int | None = None
    copies: frozenset[int] = frozenset()
    """Nodes of other patterns, or left to XLA, that this one computes for itself since that costs less than reading
    them.
    """

    loop: Loop | None = None
    """How whole loops run, where the pattern is such; None for straight code."""

    phase: int = 0
    """Of its kernel: how many barriers of all blocks stand before it."""

    def renumbered(self, ids: Mapping[int, int]) -> Pattern:
        """Return the same pattern in a graph whose nodes have other ids."""
        return replace(
            self,
            nodes=frozenset(ids[i] for i in self.nodes),
            bindings={ids[i]: b for i, b in self.bindings.items()},
            inputs=tuple(ids[i] for i in self.inputs),
            outputs=tuple(ids[i] for i in self.outputs),
            copies=frozenset(ids[i] for i in self.copies),
            loop=self.loop.renumbered(dict(ids)) if isinstance(self.loop, TeamLoop) else self.loop,
        )

    @property
    def inside(self) -> frozenset[int]:
        """Return everything the part computes."""
        return self.nodes | self.copies if self.copies else self.nodes


class Boundary(Struct, frozen=True):
    """A place where stitching stopped: the node (an id of the plan's graph) and why."""

    node: int
    reason: str


@dataclass(frozen=True, eq=False)
class FusionPlan:
    """Kernels as groups of patterns (more than one in a phase: kernel packing; more than one phase: grid composition),
    on a graph in which cross-row reductions are in two steps.

    ``children`` are the plans of called computations (loop bodies, branches) by node and attribute name.
    """

    graph: Graph
    kernels: tuple[tuple[Pattern, ...], ...]
    boundaries: tuple[Boundary, ...]
    children: Mapping[tuple[int, str], FusionPlan]
    notes: tuple[str, ...] = ()
    """What a user should know about how it was made."""
    alternatives: tuple[FusionPlan, ...] = ()
    """Plans that were estimated to take longer, where it is worth the time to look at their kernels."""

    def __str__(self) -> str:
        lines = [f"plan of {self.graph.name}: {len(self.kernels)} stitched kernels"]
        for k, kernel in enumerate(self.kernels):
            for pattern in kernel:
                ops = sorted({self.graph[i].op for i in pattern.nodes})
                phase = f", phase {pattern.phase}" if kernel[-1].phase else ""
                lines.append(f"  kernel {k}{phase}: {pattern.rows} rows, {len(pattern.nodes)} ops ({', '.join(ops)})")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  cut at {self.graph[b.node].name or self.graph[b.node].op}: {b.reason}" for b in self.boundaries]
        return "\n".join(lines)
