"""Kernels of these tests are compiled lightly in ``make test``; some are planned for a described CPU."""

from __future__ import annotations

import pytest

from jax_stitch.devices.cpu import CPU_VARIABLE
from tests.light import light

__all__ = ["light", "zen4"]


@pytest.fixture
def zen4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine's CPU for one with vectors of 16 floats and a level 2 of a megabyte."""
    monkeypatch.setenv(CPU_VARIABLE, "zen4")
