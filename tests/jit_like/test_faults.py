"""A stitched function on a machine where something is broken: right results, and one warning where it is not stitched.

As a user would meet it: in a process that has just been started, or that has forgotten what it knew. Faults of JAX
Stitch itself are in ``test_public_fallbacks.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.ground import HANDLER
from tests.jit_like.processes import run
from tests.seeded_cache import seeded

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


def use(**environment: str) -> tuple[int, int, int, str]:
    """A function used in some ways: its warnings, other warnings of ours, its kernels, and what was warned."""
    return parsed(run(USE, **environment))


def parsed(printed: str) -> tuple[int, int, int, str]:
    counts, _, message = printed.partition("\n")
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


TROUBLES = {
    "false": "os.environ['CXX'] = 'false'",
    "echo": "os.environ['CXX'] = 'echo'",
    "no-such-compiler": "os.environ['CXX'] = 'no-such-compiler'",
    # Also where the compiler writes: no file may grow beyond 1 KB.
    "a full disk": """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
""",
    "a folder that nobody can write": """
resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)
os.environ['JAX_STITCH_CACHE_DIR'] = '/proc/self/cache'
""",
}
START = """
import resource, signal
from tests.faults.ground import forget
"""
BEFORE = """
print({name!r})
forget()
jax.clear_caches()
os.environ.pop("CXX", None)
os.environ["JAX_STITCH_CACHE_DIR"] = {cache!r}
"""


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int, int, str]]:
    """The same of a function used while each thing is broken. In one process that begins anew each time: it has its
    handler already, which is compiled like a kernel."""
    folder = tmp_path_factory.mktemp("troubles")
    program = START
    for n, (name, trouble) in enumerate(TROUBLES.items()):
        program += BEFORE.format(name=name, cache=str(seeded(folder / str(n)))) + trouble + USE
    root = str(Path(__file__).resolve().parents[2])
    lines = run(program, 60, **{HANDLER: str(folder / "0"), "PYTHONPATH": root}).splitlines()
    places = [lines.index(name) for name in TROUBLES]
    return {
        name: parsed("\n".join(lines[k + 1 : end]))
        for name, k, end in zip(TROUBLES, places, [*places[1:], len(lines)], strict=True)
    }


SHARED = pytest.mark.xdist_group("jit_like_troubles")
Found = dict[str, tuple[int, int, int, str]]


@SHARED
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
def test_a_cache_folder_that_nobody_can_write(troubles: Found) -> None:
    """It is stitched all the same, with one warning about the folder."""
    assert troubles["a folder that nobody can write"][:3] == (0, 1, 1)


@SHARED
@pytest.mark.every_case
@pytest.mark.parametrize("command", ["false", "echo", "no-such-compiler"])
def test_a_compiler_that_does_not_compile(command: str, troubles: Found) -> None:
    """It fails, is not there, or succeeds and makes nothing."""
    warned, others, kernels, message = troubles[command]
    assert (warned, others, kernels) == (1, 0, 0)
    assert "softmax runs as plain jax.jit: " in message and command in message and "$CXX" in message


@SHARED
def test_a_disk_that_is_full_everywhere(troubles: Found) -> None:
    warned, _, kernels, message = troubles["a full disk"]
    assert (warned, kernels) == (1, 0)
    assert "softmax runs as plain jax.jit: [Errno " in message and "TMPDIR" in message and "report" not in message
