"""CuPy where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from jax_stitch.devices.attached import provided
from tests.attached.fake_cupy import Fake


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    found = Fake()
    monkeypatch.setitem(sys.modules, "cupy", found)
    provided.cupy.cache_clear()
    yield found
    provided.cupy.cache_clear()
