"""The cache stays within its limit: what was read least recently goes first, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jax_stitch.util import store
from jax_stitch.util.store import eviction


def fill(cache: Path, count: int, size: int) -> list[Path]:
    """Entries written one by one, each an hour younger than the one before."""
    paths = []
    for n in range(count):
        store.write("kernels", f"entry{n}", bytes(size))
        paths.append(cache / "kernels" / f"entry{n}")
    for n, path in enumerate(paths):
        then = time.time() - 3600 * (count - n)
        os.utime(path, (then, then))
    return paths


def test_the_least_recently_read_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fill(cache, 10, 1000)
    assert store.read("kernels", "entry0") is not None
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", "8000")
    store.write("programs", "new", bytes(1000))
    left = [path.name for path in paths if path.exists()]
    assert left == ["entry0", "entry6", "entry7", "entry8", "entry9"]
    assert store.read("programs", "new") is not None
    assert store.contents().bytes <= 0.9 * 8000


def test_writing_much_never_exceeds_it_by_much(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", "100000")
    for n in range(100):
        store.write("kernels", f"entry{n}", bytes(5000))
        assert store.contents().bytes <= 106_000
    assert store.read("kernels", "entry99") is not None


def test_looking_through_the_folder_is_rare(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(eviction, "shrink", lambda root, allowed: looks.append(allowed))
    for n in range(100):
        store.write("kernels", f"entry{n}", bytes(100))
    assert looks == [eviction.DEFAULT]


def test_what_dead_processes_left_goes(cache: Path) -> None:
    (path,) = fill(cache, 1, 10)
    old, young = (path.with_name(f"{eviction.TEMPORARY}{n}") for n in range(2))
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    eviction.shrink(cache, eviction.DEFAULT)
    assert not old.exists() and young.exists() and path.exists()


def test_other_files_stay(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable may name a folder with other things in it."""
    photo = cache / "photos" / "cat"
    photo.parent.mkdir(parents=True)
    photo.write_bytes(bytes(5000))
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", "0")
    store.write("kernels", "a", b"content")
    assert photo.exists() and store.read("kernels", "a") is None
    store.clear()
    assert photo.exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 2 << 30), ("0", 0), ("1000000", 1_000_000), ("500M", 500 << 20), ("2 GiB", 2 << 30), ("1.5kb", 1536)],
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", text)
    assert store.limit() == size


@pytest.mark.parametrize("text", ["much", "-1", "5 apples"])
def test_no_sizes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", text)
    with pytest.warns(UserWarning, match="which is no size"):
        assert store.limit() == eviction.DEFAULT
