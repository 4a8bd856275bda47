"""The cache folder: where it is, who may read it, and what happens where it cannot be."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

from jax_stitch import cachedir


def test_the_environment_variable_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    folder = cachedir.cache_dir("kernels")
    assert folder == tmp_path / "deep" / "cache" / "kernels" and folder.is_dir()
    assert list(folder.iterdir()) == [], "the trial file is gone"


def test_only_the_owner_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "cache"))
    previous = os.umask(0)
    try:
        folder = cachedir.cache_dir("kernels")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_without_the_variable_it_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_STITCH_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    folder = cachedir.cache_dir("kernels")
    assert folder.is_relative_to(tmp_path) and "jax-stitch" in folder.parts


def test_an_unwritable_folder_warns_once_and_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(blocker / "cache"))
    with pytest.warns(UserWarning, match="JAX_STITCH_CACHE_DIR"):
        folder = cachedir.cache_dir("kernels")
    (folder / "entry").write_text("kept for this process")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cachedir.cache_dir("kernels") == folder
        assert cachedir.cache_dir("devices").parent == folder.parent
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "entry"
    cachedir.write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        cachedir.write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
