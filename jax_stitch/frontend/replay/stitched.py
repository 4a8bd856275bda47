"""A graph with some of its nodes handed to stitched kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from jax_stitch.graph.model import Graph


class Segment(Struct, frozen=True, eq=False):
    """Nodes that one stitched kernel computes.

    ``inputs`` are the ids of the arrays it reads (outside ``nodes``), ``outputs`` the ids (inside) of those it
    returns, in the order of ``call``'s argument and result. ``call`` is traced with x64 enabled, so that 64-bit arrays
    inside a program without them stay what they are; it must not rely on JAX's default types.
    """

    nodes: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    call: Callable[[Sequence[Any]], Sequence[Any]]
    after: tuple[int, ...] = ()
    """Values that it does not read and yet waits for: ``call`` gets them behind the inputs."""

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Return all that has to be there before it runs."""
        return self.inputs + self.after


class StitchedGraph(Struct, frozen=True, eq=False):
    """A graph, the segments cut out of it, and the stitched forms of computations that its nodes call.

    ``children`` is keyed by (node id, attribute name), e.g. ``(7, "body")``; a called computation without an entry is
    replayed as it is.
    """

    graph: Graph
    segments: tuple[Segment, ...] = ()
    children: Mapping[tuple[int, str], StitchedGraph] = field(default_factory=lambda: MappingProxyType({}))
