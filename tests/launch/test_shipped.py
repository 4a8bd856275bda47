"""The handler that a wheel holds: taken where it is this package's and nobody else can write it, else compiled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.machinery import all_suffixes
from pathlib import Path

import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.host import LIBRARY_FLAGS
from jax_stitch.backend.launch import host, native, shipped


@pytest.fixture(scope="module")
def compiled() -> bytes:
    options = (*LIBRARY_FLAGS, *(f"-I{folder}" for folder in shipped.include_folders()))
    return toolchain.shared_object("handler", shipped.SOURCE.read_text(encoding="utf-8"), options)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bytes) -> Path:
    """A folder of the package as a wheel would have it."""
    folder = tmp_path / "launch"
    folder.mkdir(mode=0o755)
    for path in shipped.FOLDER.iterdir():
        if path.suffix in (".cc", ".h"):
            shutil.copy(path, folder)
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "SOURCE", folder / "handler.cc")
    (folder / shipped.name()).write_bytes(compiled)
    (folder / shipped.name()).chmod(0o644)
    return folder


def test_the_shipped_handler_is_taken(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was compiled all the same."""
    monkeypatch.setattr(native, "_loaded", [])
    monkeypatch.setattr(native, "_compiled", lambda: pytest.fail("compiled"))
    monkeypatch.setattr(host, "TARGET", "jax_stitch_test_shipped")
    monkeypatch.setattr(shipped.content, "__defaults__", (package,))
    assert host._handler.__wrapped__().jax_stitch_register


def test_nothing_takes_it_for_a_module() -> None:
    """Whoever walks through all modules of the package imported it, and failed."""
    assert not shipped.name().endswith(tuple(all_suffixes()))


def writable_by_the_group(folder: Path) -> None:
    (folder / shipped.name()).chmod(0o664)


def in_a_folder_of_all(folder: Path) -> None:
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    path = folder / shipped.name()
    path.rename(folder / "elsewhere.so")
    path.symlink_to(folder / "elsewhere.so")


def a_folder(folder: Path) -> None:
    (folder / shipped.name()).unlink()
    (folder / shipped.name()).mkdir()


def of_another_text(folder: Path) -> None:
    with (folder / "handler.cc").open("a") as file:
        file.write("// another\n")


def of_another_header(folder: Path) -> None:
    with (folder / "registry.h").open("a") as file:
        file.write("// another\n")


@pytest.mark.parametrize(
    "change",
    [writable_by_the_group, in_a_folder_of_all, a_link, a_folder, of_another_text, of_another_header],
    ids=lambda change: change.__name__,
)
def test_what_others_can_write_or_is_of_other_texts_is_not_taken(package: Path, change: Callable[[Path], None]) -> None:
    """Another user's code would run in this process; or the handler would not be what its text says."""
    assert shipped.content(package) is not None
    change(package)
    assert shipped.content(package) is None


def test_nor_another_users(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    owner = (package / shipped.name()).stat().st_uid
    assert (shipped.content(package) is None) == (owner != 0), "root's is anybody's"


@pytest.mark.parametrize("fact", [("platform.machine", lambda: "riscv64"), ("sys.platform", "darwin")])
def test_nor_another_machines(package: Path, fact: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*fact)
    assert shipped.content(package) is None


@pytest.mark.parametrize("bad", [b"", b"no object", None], ids=["empty", "garbage", "another library"])
def test_what_cannot_be_loaded_is_compiled(package: Path, bad: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made on a newer system: the loader refuses it, and the function did not run."""
    if bad is None:
        bad = toolchain.shared_object("other", 'extern "C" void other() {}', ["-O0"])
    (package / shipped.name()).write_bytes(bad)
    monkeypatch.setattr(shipped.content, "__defaults__", (package,))
    assert native._shipped() is None
