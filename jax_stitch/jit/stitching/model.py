"""A program before JAX has it again: compiled kernels, and the graph that launches them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from jax_stitch.backend.compile import Kernel
from jax_stitch.devices import Device
from jax_stitch.emit.source import KernelSource
from jax_stitch.frontend.replay import LaunchedGraph


class KernelProgram(Struct, frozen=True, eq=False):
    """A program whose kernels are compiled and loaded."""

    graph: LaunchedGraph
    sources: tuple[KernelSource, ...]
    kernels: tuple[Kernel, ...]
    """Compiled from ``sources``, one by one."""
    source_of: tuple[int, ...]
    """For each kernel of ``graph``, by its number: that of its source. Those that are alike share one."""
    launches: int
    """Of stitched kernels in a call, in place of so many of XLA's (``replaced``)."""
    replaced: int
    planning: float = 0.0
    compiling: float = 0.0
    """Seconds that these took."""
    lasting: bool = True
    """As in ``Stitched``."""


@dataclass(frozen=True)
class SentProgram:
    """A captured function as another process was told of it: a ``Captured``."""

    name: str
    device: Device
    text: str = field(repr=False)
    homes: Mapping[int, int]
    callbacks: Sequence[Any]
    """As many as there are; they are the other process's."""
    effects: Collection[Any]
    seconds: float
    xla_seconds: float | None
    unsupported: str | None = None
    is_partitioned: bool = False
