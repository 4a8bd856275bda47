"""How many buffers one kernel may have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.devices import Device

MAX_BUFFERS = 1024
"""XLA launches no kernel of its PTX custom call with more."""


def buffers_fit(group: Sequence[Pattern], device: Device) -> bool:
    """Return whether the pointers of all buffers fit the parameters of one kernel."""
    return len(buffers_of(group)) <= most_buffers(device)


def buffers_of(group: Iterable[Pattern]) -> set[int]:
    """Return the values that patterns read and write."""
    return {i for p in group for i in (*p.inputs, *p.outputs)}


def most_buffers(device: Device) -> int:
    """Return how many values one kernel may read and write."""
    # Two are for the barrier of a grid, and for the result without elements (backend/launch/kernel_call.py).
    return min(device.kernel_parameter_bytes // 8, MAX_BUFFERS) - 2
