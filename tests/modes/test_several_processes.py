"""``jax.distributed``: every process runs the same program, or their collectives wait for each other for ever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modes.conftest import LONG

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, time
number, port = int(sys.argv[1]), sys.argv[2]
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", 2, number, initialization_timeout=120)
import jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_stitch import stitch_jit

assert jax.process_count() == 2 and jax.device_count() == 4
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

for n in range(12):
    if n == 3 and number == 0:
        time.sleep(2)  # One is slow.
    np.testing.assert_allclose(spread(x).addressable_data(0), expected, rtol=1e-4)
assert spread.wait(300)
(program,) = spread.status().programs
print(program.state, "several processes" in program.detail)

outer = jax.jit(lambda x: spread(x) * 2, out_shardings=NamedSharding(mesh, P()))
np.testing.assert_allclose(outer(x).addressable_data(0), 2 * expected, rtol=1e-4)
print("custom_call" in outer.lower(x).as_text().replace("custom_call @Sharding", ""))
"""


def test_all_run_the_same(tmp_path: Path) -> None:
    """Plain ``jax.jit`` in each, whatever its cache says; right results, no hang, no warning."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    settings = {"PYTHONPATH": str(ROOT), "JAX_STITCH_MODE": "auto", "PYTHONWARNINGS": "error::UserWarning"}
    settings["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(number), port],
            env=os.environ | settings | {"JAX_STITCH_CACHE_DIR": str(tmp_path / str(number))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        found = [process.communicate(timeout=LONG) for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail("they wait for each other")
    finally:
        for process in processes:
            process.kill()
    for process, (output, errors) in zip(processes, found, strict=True):
        assert process.returncode == 0, errors
        assert [line for line in output.splitlines() if "Gloo" not in line] == ["plain True", "False"]
