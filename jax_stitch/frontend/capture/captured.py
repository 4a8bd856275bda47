"""What planning needs of a captured function. It is data, so that a process without JAX can plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from jax_stitch.devices import Device


class Captured(Protocol):
    """A ``Capture``, or what another process was told of one."""

    @property
    def name(self) -> str:
        """Return the function's."""

    @property
    def device(self) -> Device:
        """Return the device that it was compiled for."""

    @property
    def text(self) -> str:
        """Return the HLO that is planned."""

    @property
    def homes(self) -> Mapping[int, int]:
        """Return, by number of a donated parameter, the result that takes its memory."""

    @property
    def callbacks(self) -> Sequence[Any]:
        """Return the Python functions that it calls, by the numbers that they have in ``text``."""

    @property
    def effects(self) -> Collection[Any]:
        """Return its calls of Python functions."""

    @property
    def unsupported(self) -> str | None:
        """Return why the function has to be left to ``jax.jit``; None if it need not."""

    @property
    def is_partitioned(self) -> bool:
        """Return whether it is one device's part of a program for several."""

    @property
    def seconds(self) -> float:
        """Time that tracing and lowering took."""

    @property
    def xla_seconds(self) -> float | None:
        """Return seconds of processor time that XLA took for it, at least about; None where that is not known."""
