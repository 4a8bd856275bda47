"""What the cost model takes for granted, measured: the cost of one more launch by each launcher, and of a byte.

``python -m bench device`` prints it; the table of devices and ``jax_stitch.devices.targets`` have what is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bench.worker import Tell
from jax_stitch import devices
from jax_stitch.api import stitch_jit
from jax_stitch.backend.compile import compile_host, compile_ptx
from jax_stitch.backend.launch import call, choice, direct
from jax_stitch.devices import Device, attached
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType
from jax_stitch.util.options.launchers import Launcher
from jax_stitch.util.timing import time_in_turn

WIDTH = 256
SHORT_CHAIN, LONG_CHAIN = 64, 512
"""Launches in the two programs whose difference is the cost of one."""
COPIES = {"cpu": (1 << 16, 1 << 20, 1 << 24, 1 << 27), "cuda": (1 << 20, 1 << 24, 1 << 28, 1 << 30)}
"""Bytes copied, from what stays in a cache to what does not."""
One = Callable[[jax.Array], jax.Array]


def answer(request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Constants of the device in use ("cpu" or "cuda"); seconds and bytes per second."""
    kind = request["device"]
    device = devices.get("cpu" if kind == "cpu" else None)
    tell("timing copies")
    copies = {str(size): _copy(size) for size in COPIES[kind]}
    launches = {}
    for name, one in launchers(device).items():
        tell(f"timing launches by {name}")
        launches[name] = launch_seconds(one)
    return {
        "device": device.description,
        "launch_seconds": launches,
        "assumed_launch_seconds": device.target.launch_seconds,
        "copy_bytes_per_second": copies,
        "driver_copy_bytes_per_second": _by_driver(COPIES[kind]),
        "assumed_bytes_per_second": device.memory_bandwidth,
    }


def launchers(device: Device) -> dict[str, One]:
    """Ways to launch the same small kernel; that of XLA is its own."""
    source = _source(device)
    if device.target.is_host:
        host = compile_host(source)
        return {"XLA": _alone, "stitched, FFI handler": lambda x: call(host, source, x)[0]}
    assert device.sm is not None
    kernel = compile_ptx(source, device.sm)

    def launched(launcher: Launcher) -> One:
        def one(x: jax.Array) -> jax.Array:
            with choice.using(launcher):
                return call(kernel, source, x)[0]

        return one

    return {
        "XLA": _alone,
        "stitched, PTX custom call": launched(Launcher.PTX),
        "stitched, typed FFI launcher": launched(Launcher.FFI),
    }


def launch_seconds(one: One) -> float:
    """What each launch adds to a chain of launches, each of which needs the one before."""

    def chain(length: int) -> Callable[[], Any]:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(length):
                x = jax.lax.optimization_barrier(one(x))
            return x

        program, x = jax.jit(run), jnp.ones(WIDTH)
        return lambda: program(x)

    found = time_in_turn({"short": chain(SHORT_CHAIN), "long": chain(LONG_CHAIN)}, seconds=2.0)
    return (found["long"].median - found["short"].median) / (LONG_CHAIN - SHORT_CHAIN)


def _by_driver(sizes: Sequence[int]) -> dict[str, float]:
    """Of copies by the driver of an attached GPU, from cold memory, by events; nothing elsewhere, or without CuPy."""
    return {str(size): attached.copy_bandwidth(size) for size in sizes} if direct.is_possible() else {}


def _alone(x: jax.Array) -> jax.Array:
    return x * 0.5 - 1


def _source(device: Device) -> KernelSource:
    """The kernel that a small stitched function becomes on the device."""
    shape = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)
    plan = stitch_jit(lambda x: x - x.mean()).plan(shape, device=device.name)
    (kernel,) = plan.kernels
    types = (TensorType("f32", (WIDTH,)),)
    return KernelSource(
        kernel.name, kernel.source, types, types, kernel.launch.grid, kernel.launch.block, kernel.launch.shared_bytes
    )


def _copy(size: int) -> float:
    """Bytes read and written per second by a copy of ``size`` bytes, many of them in one program."""
    x = jnp.ones(size // 4, jnp.float32)
    count = max(1, min(256, (1 << 28) // size))

    @jax.jit
    def copies(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda _, y: jax.lax.optimization_barrier(y * 0.5), x)

    return 2 * size * count / time_in_turn({"copies": lambda: copies(x)}, seconds=1.0)["copies"].median
