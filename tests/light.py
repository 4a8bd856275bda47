"""Kernels in ``make test``: compiled lightly, as whether they are right is asked of them once."""

from __future__ import annotations

import pytest

from jax_stitch.compile import host
from tests.fusion.forced import LIGHT_FLAGS
from tests.some import some


@pytest.fixture(autouse=True)
def light_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders whose ``conftest.py`` has it; ``make test-all`` compiles with the flags that users have."""
    if some(1, of=0):
        monkeypatch.setattr(host, "FLAGS", LIGHT_FLAGS)
