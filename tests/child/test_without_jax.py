"""What only plans starts without JAX: its import is most of what a small program's kernels would cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import devices
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.replay.missing import opcodes
from jax_stitch.jit.rebuilt.finish import finish
from jax_stitch.jit.stitching.sent import from_bytes

CHILD = """
import json, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from jax_stitch.jit.stitching.maker import answer

header = json.load(sys.stdin)
reply, made = answer(header, header["text"].encode())
assert not reply["reason"], reply["reason"]
sys.stdout.buffer.write(made)
"""
X = np.linspace(-3, 3, 24 * 64, dtype=np.float32).reshape(24, 64)
W = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64) / 8


def network(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Straight code, a reduction, a product that XLA keeps, a sort, a loop that is a kernel, and one that stays."""
    hidden = jax.nn.softmax(jnp.tanh(x @ w))
    last, every = jax.lax.scan(lambda c, row: (jnp.tanh(c * 0.9 + row), c.sum()), jnp.zeros(64), hidden)
    return jnp.sort(last)[::-1] + every[-1], jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ w + 1), hidden)


def planned(text: str, device: Device, **more: object) -> bytes:
    """The program that a process makes which cannot import JAX."""
    header = {
        **{"function": "network", "homes": [], "callbacks": 0, "effects": 0, "xla_seconds": 1.0, "text": text},
        **{"device": asdict(device), "laid_out_for": asdict(device), "planner": "beam", "templates": ""},
        **{"sparing": False, "planning": None, "budget": None, "memory": None, "log": 30, "opcodes": sorted(opcodes())},
        **{"environment": dict(os.environ), "conditions": {}},
    }
    command = [sys.executable, "-c", CHILD]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, input=json.dumps(header | more).encode(), capture_output=True, cwd=root)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


def test_kernels_for_the_cpu() -> None:
    captured = capture(network, (X, W), devices.get("cpu"))
    program = from_bytes(planned(captured.text, captured.device, sparing=True))
    assert len(program.kernels) >= 1
    rebuilt = finish(captured, program)
    found = jax.jit(lambda *a: captured.unflatten(rebuilt(captured.flatten(a), captured.results)))(X, W)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, jax.jit(network)(X, W))


def test_kernels_for_a_gpu() -> None:
    """The same HLO for another device: what is launched there, and how, is data too."""
    captured = capture(jax.nn.softmax, (X,), devices.get("cpu"))
    program = from_bytes(planned(captured.text, devices.get("h200")))
    assert program.kernels and all(hasattr(kernel, "ptx") for kernel in program.kernels)


def test_and_what_only_calls_starts_without_what_plans() -> None:
    """A process that finds its programs on disk needs neither graphs nor rules, which take as long to import as JAX."""
    heavy = "('hlo_parser', 'jax_stitch.graph', 'jax_stitch.frontend.replay', 'jax_stitch.fusion', 'jax_stitch.emit')"
    code = f"import sys; from jax_stitch import stitch_jit; assert not [m for m in {heavy} if m in sys.modules]"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])
