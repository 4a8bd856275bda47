"""Where a program launches its kernels, as data: it can be sent to the process that replays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from jax_stitch.graph.model import Graph

from .stitched import Segment, StitchedGraph


class Launch(Struct, frozen=True, eq=False):
    """A kernel in the place of nodes; ``nodes``, ``inputs`` and ``outputs`` are those of a ``Segment``."""

    nodes: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: int
    """Number among the program's kernels."""
    scope: str
    """The named scope that its operation gets in JAX."""
    work: int | None
    """About how many bytes' worth of work it is; None for as much as its buffers (see ``launch.call``)."""
    after: tuple[int, ...] = ()
    """Values that it does not read and yet waits for."""

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Return all that has to be there before it runs."""
        return self.inputs + self.after

    def segment(self, run: Callable[[Sequence[Any]], Sequence[Any]]) -> Segment:
        """Return the same with a function that runs it, in its scope."""

        def in_scope(arrays: Sequence[Any]) -> Sequence[Any]:
            import jax  # Whoever only plans has none.

            with jax.named_scope(self.scope):
                return run(arrays)

        return Segment(self.nodes, self.inputs, self.outputs, in_scope, self.after)


Runner = Callable[[Launch, Sequence[Any]], Sequence[Any]]
"""Runs a launch on its inputs, arrays or tracers, and returns its outputs. Behind the inputs are the values that it
only waits for."""


class LaunchedGraph(Struct, frozen=True, eq=False):
    """A graph with launches of kernels in place of nodes; ``children`` are those of a ``StitchedGraph``."""

    graph: Graph
    launches: tuple[Launch, ...] = ()
    children: Mapping[tuple[int, str], LaunchedGraph] = field(default_factory=lambda: MappingProxyType({}))

    def run_by(self, run: Runner) -> StitchedGraph:
        """Return the graph with ``run`` to run its launches."""

        def segment(launch: Launch) -> Segment:
            return launch.segment(lambda arrays: run(launch, arrays))

        children = {key: child.run_by(run) for key, child in self.children.items()}
        return StitchedGraph(self.graph, tuple(map(segment, self.launches)), children)
