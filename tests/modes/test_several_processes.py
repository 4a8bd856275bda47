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
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.modes.conftest import LONG
from tests.seeded_cache import seeded
from tests.some import some

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
import jax.numpy as jnp, numpy as np, warnings
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_stitch import stitch_jit
from jax_stitch.backend.compile import host
from jax_stitch.jit.programs import verdicts
from jax_stitch.jit.tiers import trial
from jax_stitch.jit.tune import worth

# What is as fast stays, and nothing is too small: so that there is something to agree on.
trial._MOST = 12
host.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host.FLAGS)  # It is quicker.
trial.CLEARLY, verdicts.BAR, worth.LEAST, worth._COMPILE_SECONDS = 1e9, 0.0, -1.0, float("-inf")
assert jax.process_count() == 2 and jax.device_count() == 2 * int(os.environ["EACH"])
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

def call(spread=spread):
    np.testing.assert_allclose(spread(x).addressable_data(0), expected, rtol=1e-4)

def of(function):
    (program,) = function.status().programs
    return program

def decided(function):
    "After how many calls."
    calls = 0
    while calls < 1500 and of(function).state not in ("stitched", "plain") if calls else True:
        if number == 0 and calls in (3, 20):
            time.sleep(float(os.environ["SLOW"]))  # The other one waits for it.
        call(function)
        calls += 1
        if calls == 6:
            assert function.wait(300)
    for _ in range(5):
        call(function)
    return calls

"""

DECIDED = """
calls = decided(spread)
print("verdict:", of(spread).state, of(spread).detail if of(spread).state == "plain" else calls, flush=True)
"""

AGREED = (
    DECIDED
    + """
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

if number == 1:
    os.environ["CXX"] = "/nowhere/to/be/found"
    warnings.simplefilter("ignore")

@stitch_jit(out_shardings=NamedSharding(mesh, P()))
def squared(x):
    return spread.__wrapped__(x) ** 2 / spread.__wrapped__(x)

decided(squared)
print("without a compiler in one:", of(squared).state, of(squared).detail)
"""
)

ENDLESS = """
print("begins", flush=True)
while True:
    call()
    time.sleep(0.01)
"""


@contextmanager
def two(program: str, settings: Mapping[str, str], caches: tuple[Path, Path]) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes of four devices each, or in ``make test`` of two."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    common = {"PYTHONPATH": str(ROOT), "JAX_STITCH_MODE": "auto", "PYTHONWARNINGS": "error::UserWarning"}
    common["EACH"] = str(some(2, of=4))
    common["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={common['EACH']} --xla_backend_optimization_level=1"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START + program, str(number), port],
            env=os.environ | common | settings | {"JAX_STITCH_CACHE_DIR": str(seeded(cache))},
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


def agreed(folders: tuple[Path, Path], slow: str = "0") -> list[str]:
    """What both say."""
    with two(AGREED, {"SLOW": slow}, folders) as processes:
        first, second = outputs(processes)
    assert first == second
    return first


@dataclass(frozen=True)
class Apart:
    """Two processes that had a cache each: these, and what both said."""

    folders: tuple[Path, Path]
    said: list[str]

    @property
    def calls(self) -> int:
        """Until they had agreed."""
        return int(self.said[0].removeprefix("verdict: stitched "))


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    root = tmp_path_factory.mktemp("apart")
    folders = (root / "0", root / "1")
    return Apart(folders, agreed(folders))


SHARED = pytest.mark.xdist_group("several_processes")
REST = ["after one has forgotten it: stitched", "inside another: False", "of one process: plain"]


@SHARED
def test_all_agree(apart: Apart) -> None:
    """On the stitched program, after the same number of calls; what is inside another function, or of one process
    alone, stays as it is."""
    assert apart.calls and apart.said[1:4] == REST


@SHARED
def test_one_without_a_compiler_keeps_both_plain(apart: Apart) -> None:
    """The process that cannot compile says so, and no other runs what it has made."""
    assert apart.said[4].startswith("without a compiler in one: plain in process 1: ")


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended before it began"
    return line.strip()


@SHARED
def test_the_next_know_it_and_one_that_is_killed_leaves_no_process_behind(apart: Apart) -> None:
    """JAX ends the others, as it does under ``jax.jit``; what they had started ends with them."""
    with two(DECIDED + ENDLESS, {"SLOW": "0", "BEAT": "10"}, apart.folders) as processes:
        verdicts = [next_line(process) for process in processes]
        assert verdicts[0] == verdicts[1] and verdicts[0].startswith("verdict: stitched ")
        assert int(verdicts[0].split()[-1]) < apart.calls
        for process in processes:
            assert next_line(process) == "begins"
        time.sleep(1.0)
        ends_with_the_other(processes)


@pytest.mark.slow
def test_one_that_is_killed_while_kernels_are_made(tmp_path: Path) -> None:
    with two(ENDLESS, {"SLOW": "0", "BEAT": "10"}, (tmp_path / "0", tmp_path / "1")) as processes:
        for process in processes:
            assert next_line(process) == "begins"
        time.sleep(3.0)
        ends_with_the_other(processes)


def ends_with_the_other(processes: list[subprocess.Popen[str]]) -> None:
    processes[1].kill()
    processes[0].send_signal(signal.SIGINT)
    try:
        processes[0].communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        pytest.fail("it waits for the one that is gone")
    assert processes[0].returncode


@pytest.mark.slow
def test_all_agree_where_one_is_slow_and_both_have_one_cache(tmp_path: Path) -> None:
    counts = []
    for _ in range(2):
        verdict, *rest = agreed((tmp_path, tmp_path), slow="1.5")
        assert rest[:3] == REST
        counts.append(int(verdict.removeprefix("verdict: stitched ")))
    assert counts[1] < counts[0]
