"""Which files a program may have shown: it can name any."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jax_stitch.inspect.page.html import page, unpacked
from jax_stitch.inspect.planned.names import _functions
from jax_stitch.util import formatting
from jax_stitch.util.source_files import source_text
from tests.page.plans import layered


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that waits for a pipe fails instead."""

    def ring(*_: object) -> None:
        raise AssertionError("it hangs")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def test_a_program_shows_no_file_of_the_users(tmp_path: Path) -> None:
    """Whoever sends a dump of HLO and asks for the plan's page got lines of whatever files the dump named."""
    plan = layered(tmp_path, layers=1, parts=3)
    (tmp_path / "model.py").write_text("secret = 'of another project'\n" * 9)
    (file,) = unpacked(page(plan, 0.5))["files"]
    assert not file["found"] and not any(line for _, line in file["lines"])


def test_files_of_loaded_code_are_shown() -> None:
    assert source_text(formatting.__file__) == Path(formatting.__file__).read_text()
    assert source_text(str(Path(formatting.__file__).with_name("nowhere.py"))) is None
    assert source_text("/etc/passwd") is None and source_text("") is None and source_text("\0") is None


def test_python_files_of_the_working_folder_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a project whose dump is looked at; nothing that a link there leads to, and no other kinds of files."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("here/model.py", "outside.py", "here/keys.pem"):
        (tmp_path / name).write_text("text")
    (tmp_path / "here" / "link.py").symlink_to(tmp_path / "outside.py")
    assert source_text(str(tmp_path / "here" / "model.py")) == "text"
    for name in ("outside.py", "here/keys.pem", "here/link.py", "here/../outside.py"):
        assert source_text(str(tmp_path / name)) is None, name


def test_neither_pipes_nor_endless_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Naming kernels, and the page, waited for ever for a pipe that a program named, and read all of /dev/zero."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").touch()
    os.truncate(tmp_path / "large.py", 1 << 32)
    for file in (str(tmp_path / "pipe.py"), str(tmp_path / "large.py"), "/dev/zero"):
        assert source_text(file) is None and _functions(file) == ()


def test_source_that_is_hard_to_read_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested as deeply as no person writes it, Python's parser runs out of its stack."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep.py").write_text("(" * 5000 + ")" * 5000)
    assert _functions(str(tmp_path / "deep.py")) == ()
