"""A stitched function on a machine where something is broken: right results, and one warning where it is not stitched.

Each in a process of its own, as a user would meet it. Faults of JAX Stitch itself are in ``test_public_fallbacks.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jit_like.processes import run

USE = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    stitched = stitch_jit(softmax)
    check(stitched), check(stitched), check(jax.jit(stitched))
    x = np.ones((3, 4), np.float32)
kinds = [w.category.__name__ for w in caught]
print(kinds.count("StitchWarning"), kinds.count("UserWarning"), stitched.lower(x).as_text().count("host_kernel"))
print(*(w.message for w in caught if w.category is StitchWarning))
"""


def use(before: str = "", **environment: str) -> tuple[int, int, int, str]:
    """A function used in some ways: its warnings, other warnings of ours, its kernels, and what was warned."""
    counts, _, message = run(before + USE, **environment).partition("\n")
    warned, others, kernels = map(int, counts.split())
    return warned, others, kernels, message


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "other bytes": lambda path: path.write_bytes(bytes(255 - b for b in path.read_bytes())),
    "one bit": lambda path: path.write_bytes(_flip(path.read_bytes())),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "gone": lambda path: path.unlink(),
}


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


FAST: list[Any] = ["one bit"]
SLOW: list[Any] = [pytest.param(damage, marks=pytest.mark.slow) for damage in DAMAGE if damage not in FAST]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    """The entries of a cache folder that one process has filled."""
    folder = tmp_path_factory.mktemp("filled")
    assert use(JAX_STITCH_CACHE_DIR=str(folder))[:3] == (0, 0, 1)
    entries = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(entries) >= 3  # kernels, the handler that launches them, plans
    return entries


@pytest.mark.parametrize("damage", FAST + SLOW)
def test_a_damaged_cache(damage: str, filled: dict[Path, bytes], tmp_path: Path) -> None:
    """No entry is believed that is not what was written; what is missing is made again."""
    for name, content in filled.items():
        path = tmp_path / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
        DAMAGE[damage](path)
    in_the_way = damage == "a folder"  # the new entry cannot take its place, of which there is a warning
    assert use(JAX_STITCH_CACHE_DIR=str(tmp_path))[:3] == (0, int(in_the_way), 1)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
def test_a_cache_folder_that_nobody_can_write() -> None:
    """It is stitched all the same, with one warning about the folder."""
    assert use(JAX_STITCH_CACHE_DIR="/proc/self/cache")[:3] == (0, 1, 1)


@pytest.mark.parametrize("command", ["false", "echo", pytest.param("no-such-compiler", marks=pytest.mark.slow)])
def test_a_compiler_that_does_not_compile(command: str, tmp_path: Path) -> None:
    """It fails, is not there, or succeeds and makes nothing."""
    warned, others, kernels, message = use(CXX=command, JAX_STITCH_CACHE_DIR=str(tmp_path))
    assert (warned, others, kernels) == (1, 0, 0)
    assert "softmax runs as plain jax.jit: " in message and command in message and "$CXX" in message


def test_a_disk_that_is_full_everywhere(tmp_path: Path) -> None:
    """Also where the compiler writes: no file may grow beyond 1 KB."""
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    warned, _, kernels, message = use(limit, JAX_STITCH_CACHE_DIR=str(tmp_path))
    assert (warned, kernels) == (1, 0)
    assert "softmax runs as plain jax.jit: [Errno " in message and "TMPDIR" in message and "report" not in message
