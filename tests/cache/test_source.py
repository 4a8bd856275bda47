"""What says that the package's own files have changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jax_stitch.jit.programs import source


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    for name in source._PACKAGES:
        (tmp_path / name / "inner").mkdir(parents=True)
        path = tmp_path / name / "inner" / "code.py"
        path.write_text("a = 1\n")
        if request.node.callspec.params.get("change") is _edited_where_all_times_are_one:
            os.utime(path, (1, 1))
    monkeypatch.setattr(source, "_ROOT", str(tmp_path))
    return tmp_path / "jax_stitch" / "inner"


def _edited(folder: Path) -> None:
    (folder / "code.py").write_text("a = 22\n")


def _edited_to_the_same_size(folder: Path) -> None:
    path = folder / "code.py"
    path.write_text("a = 2\n")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def _edited_where_all_times_are_one(folder: Path) -> None:
    """As installers that want the same bytes from the same sources leave them."""
    path = folder / "code.py"
    path.write_text("a = 3\n")
    os.utime(path, (1, 1))


def _renamed(folder: Path) -> None:
    (folder / "code.py").rename(folder / "core.py")


def _added(folder: Path) -> None:
    (folder / "kernel.h").write_text("")


def _told(of: str) -> str:
    """What the code says now, though it asks only once in a process."""
    function = {"source": source.source, "stamp": source.stamp}[of]
    function.cache_clear()
    try:
        return function()
    finally:
        function.cache_clear()


@pytest.mark.parametrize("of", ["source", "stamp"])
@pytest.mark.parametrize(
    "change", [_edited, _edited_to_the_same_size, _edited_where_all_times_are_one, _renamed, _added]
)
def test_a_change_shows(of: str, change: Callable[[Path], None], package: Path) -> None:
    """Catches: a verdict of other code taken for one of this."""
    before = _told(of)
    change(package)
    assert _told(of) != before


@pytest.mark.parametrize("of", ["source", "stamp"])
def test_bytecode_is_no_change(of: str, package: Path) -> None:
    before = _told(of)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "code.cpython-311.pyc").write_bytes(b"\0")
    assert _told(of) == before
