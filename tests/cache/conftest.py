"""A cache folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_stitch.backend.compile import host
from jax_stitch.util.store import entries, eviction
from tests.light import make_light


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, not there yet."""
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(folder))
    monkeypatch.delenv("JAX_STITCH_CACHE_MAX_SIZE", raising=False)
    monkeypatch.setattr(entries, "_warned", set())
    monkeypatch.setattr(eviction, "_since_look", {})
    monkeypatch.setattr(host, "_loaded", {})  # as in a new process
    make_light(monkeypatch)
    return folder


@pytest.fixture(autouse=True)
def everything_is_planned() -> None:
    """Here programs are kept on disk and found there."""
