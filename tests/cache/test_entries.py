"""Entries on disk: whole, sound, the user's own, or not there."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from pathlib import Path

import pytest

from jax_stitch.util import store
from jax_stitch.util.store import entries


def test_content_survives_as_it_was(cache: Path) -> None:
    assert store.read("kernels", "a") is None
    store.write("kernels", "a", b"\x00content\xff")
    assert store.read("kernels", "a") == b"\x00content\xff"
    assert store.read("programs", "a") is None
    store.write("kernels", "a", b"")
    assert store.read("kernels", "a") == b""


def test_built_once(cache: Path) -> None:
    built: list[int] = []

    def build() -> bytes:
        built.append(1)
        return b"content"

    assert store.read_or_build("kernels", "a", build) == store.read_or_build("kernels", "a", build) == b"content"
    assert len(built) == 1


@pytest.mark.parametrize("damage", ["truncated", "empty", "one byte", "lengthened", "a stranger's", "another entry's"])
def test_damaged_entries_are_set_aside(cache: Path, damage: str) -> None:
    store.write("kernels", "a", bytes(range(256)))
    store.write("kernels", "b", b"sound, but not of this name")
    path = cache / "kernels" / "a"
    sound = path.read_bytes()
    path.write_bytes(
        {
            "truncated": sound[:100],
            "empty": b"",
            "one byte": sound[:100] + bytes([sound[100] ^ 1]) + sound[101:],
            "lengthened": sound + b"\0",
            "a stranger's": b"#!/bin/sh\n",
            "another entry's": (cache / "kernels" / "b").read_bytes(),
        }[damage]
    )
    assert store.read("kernels", "a") is None
    assert not path.exists() and path.with_name("a.damaged").exists()
    store.write("kernels", "a", b"new")
    assert store.read("kernels", "a") == b"new"


def test_only_the_owner_may_read(cache: Path) -> None:
    previous = os.umask(0)
    try:
        store.write("kernels", "a", b"content")
    finally:
        os.umask(previous)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (cache, cache / "kernels", cache / "kernels" / "a")]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("mode", [0o622, 0o660])
def test_what_others_can_write_is_not_read(cache: Path, mode: int) -> None:
    store.write("kernels", "a", b"content")
    (cache / "kernels" / "a").chmod(mode)
    assert store.read("kernels", "a") is None


def test_what_belongs_to_others_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("kernels", "a", b"content")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert store.read("kernels", "a") is None


def test_links_are_not_followed(cache: Path, tmp_path: Path) -> None:
    store.write("kernels", "a", b"content")
    path = cache / "kernels" / "a"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.read("kernels", "a") is None


def test_without_the_variable_it_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_STITCH_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    folder = store.folder()
    assert folder.is_relative_to(tmp_path) and "jax-stitch" in folder.parts


def test_a_folder_that_cannot_be_made_warns_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="JAX_STITCH_CACHE_DIR"):
        store.write("kernels", "a", b"content")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.write("programs", "b", b"content")
        assert store.read("kernels", "a") is None


def test_a_read_only_folder_still_serves(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("kernels", "a", b"content")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("replace", "utime", "mkdir", "unlink"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.warns(UserWarning, match="Read-only file system"):
        store.write("kernels", "b", b"content")
    assert store.read("kernels", "a") == b"content"


def test_a_failed_write_leaves_the_old_entry_and_no_litter(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("kernels", "a", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(entries.os, "replace", full)
        with pytest.warns(UserWarning, match="No space left on device"):
            store.write("kernels", "a", b"new")
    assert store.read("kernels", "a") == b"old"
    assert [path.name for path in (cache / "kernels").iterdir()] == ["a"]


def test_a_folder_emptied_meanwhile_is_made_again(cache: Path) -> None:
    store.write("kernels", "a", b"content")
    (cache / "kernels" / "a").unlink()
    (cache / "kernels").rmdir()
    cache.rmdir()
    store.write("kernels", "a", b"content")
    assert store.read("kernels", "a") == b"content"
