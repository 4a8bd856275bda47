"""A cache folder of the test's own, in which nothing has been warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_stitch.jit.library import Station, database


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, not there yet."""
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(folder))
    monkeypatch.setattr(database, "_warned", set())
    return folder


@pytest.fixture
def station() -> Station:
    return Station("k" * 64, "cpu: some, 2", "driver 1")
