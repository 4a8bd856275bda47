"""What one process finds out about a program, as the next one meets it; and what is left when a process ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.modes.conftest import LONG

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, threading
import jax, jax.numpy as jnp
from jax_stitch import stitch_jit
from jax_stitch.tiers import trial
from jax_stitch.rebuilt.elsewhere import MAKER

plain, stitched = map(float, sys.argv[1:3])
trial.decided = lambda *samples: trial.Times(plain, stitched) if all(samples) else None  # whatever this machine does

@stitch_jit(mode="auto")
def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

x = jnp.linspace(0.0, 1.0, 4096).reshape(64, 64)
expected = jax.nn.softmax(x)
assert jnp.allclose(softmax(x), expected, atol=1e-6)
print(softmax.status().programs[0].state)
assert softmax.wait(300)
for _ in range(8):
    assert jnp.allclose(softmax(x), expected, atol=1e-6)
(found,) = softmax.status().programs
print(found.state, found.speedup, found.kernels, MAKER.child is not None)
if len(sys.argv) > 3:
    print("custom_call" in jax.jit(lambda x: softmax(x) + 0).lower(x).as_text())
"""


def run(cache: Path, *arguments: str, text: str = PROGRAM, **variables: str) -> list[str]:
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)} | variables
    found = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


SHARED = pytest.mark.xdist_group("later_processes")
"""Tests that share the first process."""


@pytest.fixture(scope="module")
def stitched(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """What a first process says that found the stitched program to be faster, and its cache, to be copied."""
    folder = tmp_path_factory.mktemp("stitched") / "cache"
    return run(folder, "2", "1"), folder


@pytest.fixture
def second(stitched: tuple[list[str], Path], cache: Path) -> Path:
    """The cache of a second process."""
    return Path(shutil.copytree(stitched[1], cache))


@SHARED
@pytest.mark.parametrize(("times", "state", "speed"), [(None, "stitched", "2.0"), (("1", "2"), "plain", "0.5")])
def test_the_next_process_starts_with_the_verdict(
    times: tuple[str, str] | None, state: str, speed: str, request: pytest.FixtureRequest, cache: Path
) -> None:
    """From its first call on, also inside another function; it measures nothing, and starts no other process."""
    if times is None:
        first, cache = request.getfixturevalue("stitched")[0], request.getfixturevalue("second")
    else:
        first = run(cache, *times)
    assert first == ["making", f"{state} {speed} 1 True"]
    assert run(cache, "1", "1", "inside") == [state, f"{state} {speed} 1 False", str(state == "stitched")]


COUNTED = """
from jax_stitch.jit import lowering
captured, inner = [], lowering.capture
lowering.capture = lambda *args, **kwargs: captured.append(args) or inner(*args, **kwargs)
"""


@SHARED
def test_the_next_process_does_not_capture_it_again(second: Path) -> None:
    """What it needs is known by the name of the call: to lower it twice took a third of its first call."""
    text = PROGRAM.replace("\nplain,", f"{COUNTED}\nplain,") + "\nprint(len(captured))"
    assert run(second, "1", "1", text=text) == ["stitched", "stitched 2.0 1 False", "0"]


@SHARED
def test_a_program_that_is_gone_is_made_again(second: Path) -> None:
    """Evicted: nobody waits for it meanwhile, and nothing is measured again."""
    for path in (second / "programs").iterdir():
        path.unlink()
    assert run(second, "1", "1") == ["making", "stitched 2.0 1 True"]


@SHARED
@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_a_damaged_verdict_counts_as_none(damage: bytes, second: Path) -> None:
    for path in (second / "verdicts").iterdir():
        path.write_bytes(damage)
    assert run(second, "1", "2") == ["making", "plain 0.5 1 False"]


def test_the_budget_is_an_end(cache: Path) -> None:
    """Kept as well: each process would spend it anew."""
    text = PROGRAM + "\nprint(found.detail)"
    found = run(cache, "2", "1", text=text, JAX_STITCH_BUDGET="0.1")
    assert found[:2] == ["making", "plain None 0 False"]
    assert "not made after 0 s of processor time: JAX_STITCH_BUDGET gives more" in found[2]
    again = run(cache, "2", "1", text=text)
    assert again[:2] == ["plain", "plain None 0 False"]


@pytest.fixture
def hanging_compiler(tmp_path: Path) -> str:
    """One that tells its version, and no more."""
    script = tmp_path / "compiler"
    script.write_text('#!/bin/sh\ncase "$*" in *--version*) echo hanging 1.0; exit;; esac\nexec sleep 600\n')
    script.chmod(0o755)
    return str(script)


def test_a_hanging_compiler(cache: Path, hanging_compiler: str) -> None:
    """Calls go on; one warning, no verdict that a mended compiler would not change, nothing left behind."""
    text = PROGRAM.replace("assert softmax.wait(300)", "assert softmax.wait(300), softmax.status()")
    variables = {"CXX": hanging_compiler, "JAX_STITCH_COMPILE_TIMEOUT": "0.3", "PYTHONWARNINGS": "ignore"}
    assert run(cache, "2", "1", text=text, **variables) == ["making", "plain None 0 True"]
    assert run(cache, "2", "1") == ["making", "stitched 2.0 1 True"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_ends_while_kernels_are_made(number: int, cache: Path, hanging_compiler: str) -> None:
    """However it ends, its child and the compilers end too, and the cache holds nothing half-written."""
    text = PROGRAM.replace("assert softmax.wait(300)", "print('waiting', flush=True); softmax.wait(300)")
    # Where the tests run in the background of a shell, interrupts are ignored.
    text = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{text}"
    environment = os.environ | {"JAX_STITCH_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "CXX": hanging_compiler}
    process = subprocess.Popen(
        [sys.executable, "-c", text, "2", "1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + LONG
    while not (started := _with(hanging_compiler, command=True)) and time.monotonic() < end:
        time.sleep(0.05)
    assert started, "a compiler was at work"
    process.send_signal(number)
    process.communicate(timeout=60)
    while (left := _with(str(cache))) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left
    assert not [path for path in cache.rglob("*") if path.name.startswith(".writing-")]
    assert run(cache, "2", "1") == ["making", "stitched 2.0 1 True"]


def _with(text: str, command: bool = False) -> list[int]:
    """Processes that have this in their environment, or in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / ("cmdline" if command else "environ")).read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in words and state != "Z":
            found.append(int(process.name))
    return found
