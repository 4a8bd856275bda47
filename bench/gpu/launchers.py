"""``python -m bench.gpu.launchers``: each kernel of each composition by XLA's call for PTX, by our own handler and by
CuPy: the same bits, and as many blocks on a multiprocessor as were counted. On a GPU alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.gpu import pool
from bench.gpu.compositions import COMPOSITIONS
from bench.worker import Tell
from jax_stitch import devices
from jax_stitch.backend.compile import CompilerMissing, PtxKernel, compile_all, occupancy, target_of
from jax_stitch.backend.launch import call, choice, direct
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource
from jax_stitch.frontend.capture import capture
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util.options.launchers import Launcher

CALLS = 3
"""Of each: a word for barriers that is not as it has to be shows at the second at the latest."""
Run = Callable[..., Sequence[jax.Array]]


def answer(values: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """The verdict on the kernels of one composition: the worker's side."""
    device = devices.get()
    if device.target.is_host:
        return {"verdict": "not here", "told": "there is one way to launch a kernel on a CPU"}
    chosen = COMPOSITIONS[values["name"]]
    tell("planning")
    arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in chosen.shapes)
    stitched = stitch_capture(capture(chosen.function, arguments, device), device)
    tell("compiling")
    kernels = compile_all(stitched.sources, target_of(device))
    told: list[str] = []
    for kernel, source in zip(kernels, stitched.sources, strict=True):
        assert isinstance(kernel, PtxKernel)
        runs, missing = ways(kernel, source)
        given = inputs(source)
        if fault := differing(runs, given, tell):
            return {"verdict": "WRONG", "told": f"{source.name}: {fault}"}
        told += missing
        if direct.is_possible():
            tell(f"timing {source.name}")
            if fault := overcounted(kernel, source, device):
                return {"verdict": "WRONG", "told": fault}
            seconds = direct.Direct.of(kernel, source).seconds(given, 0.05)
            told.append(f"{source.name} {seconds * 1e6:.1f} us by events")
    return {"verdict": "well", "told": "; ".join(dict.fromkeys(told))}


def ways(kernel: PtxKernel, source: KernelSource) -> tuple[dict[str, Run], list[str]]:
    """The ways to launch a kernel that there are on this machine, and what is said of those that there are not."""

    def by(launcher: Launcher) -> Run:
        def traced(*arrays: jax.Array) -> Sequence[jax.Array]:
            return call(kernel, source, *arrays)

        def run(*arrays: jax.Array) -> Sequence[jax.Array]:
            with choice.using(launcher):
                return jitted(*arrays)

        jitted = jax.jit(traced)
        return run

    found, missing = {"XLA's call": by(Launcher.PTX)}, []
    try:
        with choice.using(Launcher.FFI):
            found["our handler"] = by(Launcher.FFI)
    except CompilerMissing:
        missing.append("no C++ compiler for our handler")
    if direct.is_possible():
        found["CuPy"] = direct.Direct.of(kernel, source)
    else:
        missing.append("no CuPy")
    return found, missing


def inputs(source: KernelSource) -> list[jax.Array]:
    """Arrays of the types of a kernel's inputs."""
    rng = np.random.default_rng(7)
    drawn = ((numpy_dtype(t), rng.uniform(0.1, 1.0, t.dims)) for t in source.inputs)
    with jax.enable_x64(True):  # else 64-bit types would be narrowed
        return [jnp.asarray(values > 0.5 if dtype == np.bool_ else values.astype(dtype)) for dtype, values in drawn]


def differing(runs: Mapping[str, Run], given: Sequence[jax.Array], tell: Tell = lambda stage: None) -> str:
    """Which of these give other bits than the first, or than at their own first call; empty where none does."""
    wanted: list[bytes] | None = None
    for name, run in runs.items():
        for turn in range(CALLS):
            tell(f"running by {name}")
            bits = [np.asarray(result).tobytes() for result in jax.block_until_ready(run(*given))]
            wanted = wanted or bits
            if wrong := [k for k, (one, other) in enumerate(zip(wanted, bits, strict=True)) if one != other]:
                return f"by {name}, call {turn + 1}: output {wrong[0]} has other bits than by {next(iter(runs))}"
    return ""


def overcounted(kernel: PtxKernel, source: KernelSource, device: Device) -> str:
    """What is wrong where the driver puts fewer blocks on a multiprocessor than we count: who waits would hang."""
    counted = occupancy(kernel.registers, source.shared_bytes + kernel.shared_bytes, source.block, device).blocks
    driver = direct.Direct.of(kernel, source).function.blocks_per_multiprocessor()
    return f"{source.name}: {counted} blocks a multiprocessor are counted, the driver has {driver}" * (driver < counted)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs them; the exit status is that of ``bench.gpu.pool``."""
    return pool.command("bench.gpu.launchers", __doc__, tuple(COMPOSITIONS), argv)


if __name__ == "__main__":
    sys.exit(main())
