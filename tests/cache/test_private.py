"""What other users can write to is neither read nor loaded from, and what is no file is not waited for."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import warnings
from pathlib import Path

import pytest

from jax_stitch.backend.compile import build_folder, toolchain
from jax_stitch.backend.compile.load import load
from jax_stitch.jit import library
from jax_stitch.jit.library import database
from jax_stitch.util import store
from jax_stitch.util.store import eviction, private


@pytest.fixture(autouse=True)
def no_hang():
    """A test that waits for a pipe fails instead."""

    def ring(*_: object) -> None:
        raise AssertionError("it hangs")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("which", ["root", "kind"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(cache: Path, which: str, mode: int) -> None:
    """They could take away what was checked and put something else there before it is loaded."""
    store.write("kernels", "a", b"content")
    folder = cache if which == "root" else cache / "kernels"
    folder.chmod(mode)
    with pytest.warns(UserWarning, match="other users can write to"):
        assert store.read("kernels", "a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        store.write("kernels", "b", b"content")
    assert not (cache / "kernels" / "b").exists()
    folder.chmod(0o700)
    assert store.read("kernels", "a") == b"content"


def test_a_link_to_another_folder_is_not_emptied(cache: Path, tmp_path: Path) -> None:
    """``cache clear`` removed the files of whatever folder another user had put there a link to."""
    letters = tmp_path / "letters"
    letters.mkdir(mode=0o700)
    (letters / "mother").write_text("dear")
    cache.mkdir(parents=True)
    (cache / "kernels").symlink_to(letters)
    store.clear()
    eviction.shrink(cache, 0)
    assert (letters / "mother").exists()


def test_the_folder_itself_may_be_a_link(cache: Path, tmp_path: Path) -> None:
    """To a disk with more room."""
    (tmp_path / "large").mkdir(mode=0o700)
    cache.parent.mkdir(parents=True)
    cache.symlink_to(tmp_path / "large")
    store.write("kernels", "a", b"content")
    assert store.read("kernels", "a") == b"content"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_file_counts_as_missing(cache: Path, kind: str) -> None:
    """Reading a pipe that nobody writes to took for ever."""
    store.write("kernels", "a", b"content")
    path = cache / "kernels" / "a"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            here = os.getcwd()
            os.chdir(path.parent)  # names of sockets are short
            try:
                made.bind("a")
            finally:
                os.chdir(here)
    before = os.listdir("/proc/self/fd")
    assert store.read("kernels", "a") is None
    assert os.listdir("/proc/self/fd") == before  # Of a folder the descriptor stayed open.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store.write("kernels", "a", b"new")
    assert store.read("kernels", "a") == (None if kind == "folder" else b"new")
    store.contents()
    store.clear()


@pytest.mark.parametrize("which", ["times-1.sqlite", "measuring.lock", ""])
def test_the_library_waits_for_no_pipe(cache: Path, which: str) -> None:
    folder = cache / store.LIBRARY
    cache.mkdir(parents=True, mode=0o700)
    if which:
        folder.mkdir(mode=0o700)
    os.mkfifo(folder / which if which else folder, 0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.summary()
        database._warned.clear()
        with library.measuring_alone():
            pass


def test_where_private_folders_can_be_made(tmp_path: Path) -> None:
    """In a folder of everybody only where nobody can rename what is another's, as in /tmp."""
    for mode, safe in ((0o777, False), (0o1777, True), (0o700, True), (0o770, False), (0o1770, True)):
        tmp_path.chmod(mode)
        assert private.can_hold_secrets(tmp_path) is safe, oct(mode)
    assert not private.can_hold_secrets(tmp_path / "missing")


def test_nothing_is_compiled_where_others_could_change_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary folder without the sticky bit: another user renames the build folder and puts one of theirs there."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    with build_folder.build_folder() as folder:
        assert folder.is_relative_to(cache)
    cache.chmod(0o777)
    with pytest.raises(OSError, match="others cannot write to"), build_folder.build_folder():
        pass


def test_what_is_loaded_has_no_name(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy lay in a folder, in the cache folder even, for others to change between the writing and the loading."""
    content = toolchain.shared_object("answer", 'extern "C" int answer() { return 42; }', ["-O0"])
    opened = ctypes.CDLL
    seen = []

    def watch(path: str) -> ctypes.CDLL:
        seen.append(os.readlink(path))
        return opened(path)

    monkeypatch.setattr(ctypes, "CDLL", watch)
    assert load(content).answer() == 42
    monkeypatch.delattr(os, "memfd_create")
    assert load(content).answer() == 42
    assert len(seen) == 2 and all(path.endswith(" (deleted)") for path in seen), seen


def test_each_library_is_the_one_that_was_given(cache: Path) -> None:
    """The loader takes a path that it knows for the library that it has; numbers of open files are used again."""
    texts = [f'extern "C" int answer() {{ return {n}; }}' for n in range(4)]
    libraries = [toolchain.shared_object("answer", text, ["-O0"]) for text in texts]
    for n in range(20):
        assert load(libraries[n % 4]).answer() == n % 4
