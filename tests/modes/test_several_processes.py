"""``jax.distributed``: every process runs the same program, or their collectives wait for each other for ever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.modes.conftest import LONG

ROOT = Path(__file__).resolve().parents[2]

START = """
import os, sys, time
number, port = int(sys.argv[1]), sys.argv[2]
ours = os.dup(1)
os.dup2(2, 1)  # Gloo writes half lines there, at any time.
sys.stdout = os.fdopen(ours, "w")
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", 2, number, initialization_timeout=120,
                           heartbeat_timeout_seconds=int(os.environ.get("BEAT", "100")))
import jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_stitch import stitch_jit
from jax_stitch.tiers import trial
from jax_stitch.tune import worth

# What is as fast stays, and nothing is too small: so that there is something to agree on.
trial.CLEARLY, worth.LEAST, worth._COMPILE_SECONDS = 1e9, -1.0, float("-inf")
assert jax.process_count() == 2 and jax.device_count() == 8
mesh = Mesh(np.array(jax.devices()), ("i",))
whole = np.linspace(-1.0, 2.0, 64 * 32, dtype=np.float32).reshape(64, 32)
x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("i")), lambda index: whole[index])

@stitch_jit(out_shardings=NamedSharding(mesh, P()))
def spread(x):
    x = x - x.mean(0, keepdims=True)
    return jax.nn.softmax(x / jnp.sqrt((x ** 2).mean(0, keepdims=True) + 1e-5), -1)

centred = whole - whole.mean(0)
e = np.exp(centred / np.sqrt((centred ** 2).mean(0) + 1e-5))
expected = e / e.sum(-1, keepdims=True)

def call():
    np.testing.assert_allclose(spread(x).addressable_data(0), expected, rtol=1e-4)

def of(function):
    (program,) = function.status().programs
    return program
"""

AGREED = """
calls = 0
while calls < 1500 and of(spread).state not in ("stitched", "plain") if calls else True:
    if number == 0 and calls in (3, 20):
        time.sleep(float(os.environ["SLOW"]))  # The other one waits for it.
    call()
    calls += 1
    if calls == 6:
        assert spread.wait(300)
for _ in range(5):
    call()
print("verdict:", of(spread).state, of(spread).detail if of(spread).state == "plain" else calls)

if number == 1:
    jax.clear_caches()  # The other one goes on, and does not know of it.
for _ in range(3):
    call()
print("after one has forgotten it:", of(spread).state)

outer = jax.jit(lambda x: spread(x) * 2, out_shardings=NamedSharding(mesh, P()))
np.testing.assert_allclose(outer(x).addressable_data(0), 2 * expected, rtol=1e-4)
print("inside another:", "stitch" in outer.lower(x).as_text())

@stitch_jit
def own(x):  # of this process alone
    return jax.nn.softmax(x - x.mean(-1, keepdims=True), -1)

own(whole)
print("of one process:", of(own).state)
"""

ENDLESS = """
print("begins", flush=True)
while True:
    call()
    time.sleep(0.01)
"""


@contextmanager
def two(program: str, settings: Mapping[str, str], caches: tuple[Path, Path]) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes of four devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    common = {"PYTHONPATH": str(ROOT), "JAX_STITCH_MODE": "auto", "PYTHONWARNINGS": "error::UserWarning"}
    common["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START + program, str(number), port],
            env=os.environ | common | settings | {"JAX_STITCH_CACHE_DIR": str(cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, cache in enumerate(caches)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def outputs(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """The lines of each, once both have ended."""
    try:
        found = [process.communicate(timeout=LONG) for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail("they wait for each other")
    for process, (_, errors) in zip(processes, found, strict=True):
        assert process.returncode == 0, errors
    return [output.splitlines() for output, _ in found]


@pytest.mark.parametrize(("caches", "slow"), (("apart", "0"), ("together", "1.5")))
def test_all_agree(tmp_path: Path, caches: str, slow: str) -> None:
    """On the stitched program, after the same number of calls; what is inside another function, or of one process
    alone, stays as it is. A second time they know it."""
    folders = (tmp_path / "0", tmp_path / ("0" if caches == "together" else "1"))
    counts = []
    for _ in range(2):
        with two(AGREED, {"SLOW": slow}, folders) as processes:
            first, second = outputs(processes)
        assert first == second
        verdict, *rest = first
        assert verdict.startswith("verdict: stitched ")
        assert rest == ["after one has forgotten it: stitched", "inside another: False", "of one process: plain"]
        counts.append(int(verdict.split()[-1]))
    assert counts[1] < counts[0]


def test_one_without_a_compiler_keeps_both_plain(tmp_path: Path) -> None:
    """The process that cannot compile says so, and no other runs what it has made."""
    broken = """
if number == 1:
    os.environ["CXX"] = "/nowhere/to/be/found"
    import warnings
    warnings.simplefilter("ignore")
"""
    with two(broken + AGREED, {"SLOW": "0"}, (tmp_path / "0", tmp_path / "1")) as processes:
        first, second = outputs(processes)
    assert first == second
    assert first[0].startswith("verdict: plain in process 1: ")


def test_one_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """JAX ends the others, as it does under ``jax.jit``; what they had started ends with them."""
    with two(ENDLESS, {"SLOW": "0", "BEAT": "10"}, (tmp_path / "0", tmp_path / "1")) as processes:
        for process in processes:
            assert process.stdout is not None
            while "begins" not in (line := process.stdout.readline()):
                assert line, "it ended before it began"
        time.sleep(3.0)
        processes[1].kill()
        processes[0].send_signal(signal.SIGINT)
        try:
            processes[0].communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            pytest.fail("it waits for the one that is gone")
        assert processes[0].returncode
