"""The compiler process: XLA's GPU compiler for GPUs that are only described, behind a pair of pipes.

It also compiles, for such a GPU or for its CPU, programs with calls of what is not there: they are only looked at.

Where the CUDA plugin is installed but no driver is, JAX has to be told so in environment variables that it reads when
it is imported. A process of its own spares users from setting them. Its parent keeps it for further programs; it ends
when its input does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jax_stitch.frontend.capture.errors import unknown_call
from jax_stitch.frontend.capture.hlo_text import full_text
from jax_stitch.util.child import serve
from jax_stitch.util.jax_names import get_topology_desc, ir, lapack_functions, mlir, xla_client


def answer(header: dict[str, Any], program: bytes) -> tuple[dict[str, Any], bytes]:
    """Answer a compilation request.

    A request's header is {"target_config", "options": [[name, value], ...]}, its payload MLIR bytecode of a StableHLO
    module; without a target_config it is compiled for the CPU. The reply is {"ok": true} with the optimized HLO text,
    or {"ok": false} with the error's text.
    """
    try:
        text = _with_stand_ins(program, header["target_config"], [tuple(o) for o in header["options"]])
    except Exception as error:  # Whatever XLA says belongs to the parent.
        return {"ok": False}, f"{type(error).__name__}: {error}".encode()
    return {"ok": True}, text.encode()


def _with_stand_ins(program: bytes, target_config: str | None, options: list[tuple[str, Any]]) -> str:
    """Return the optimized HLO text, with stand-ins for the functions that the program calls and XLA does not know."""
    platform, tried = "cpu" if target_config is None else "CUDA", set[str]()
    while True:
        try:
            if target_config is None:
                return compile_for_devices(program, jax.local_devices(backend="cpu")[:1], options)
            return compile_described(program, target_config, options)
        except jax.errors.JaxRuntimeError as error:
            name = unknown_call(str(error))
            if name is None or name in tried:
                raise
            tried.add(name)
            any_function = next(f for _, f, version in lapack_functions()["cpu"] if version == 1)  # It never runs.
            for version in (0, 1):
                jax.ffi.register_ffi_target(name, any_function, platform=platform, api_version=version)


def compile_described(program: bytes, target_config: str, options: list[tuple[str, Any]]) -> str:
    """Return the optimized HLO text of a StableHLO module for as many as it is for of the GPU that a target
    configuration describes.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(program)  # held by a name: what belongs to it does not keep it
        attributes = module.operation.attributes
        count = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value if "mhlo.num_partitions" in attributes else 1
    return compile_for_devices(program, _devices(target_config, count), options, attached=False)


def compile_for_devices(
    program: bytes, devices: Sequence[Any], options: list[tuple[str, Any]], *, attached: bool = True
) -> str:
    """Return the same for these devices, all of them together."""
    count = len(devices)
    compile_options = xla_client.CompileOptions()
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
    compile_options.num_replicas, compile_options.num_partitions = 1, count
    compile_options.env_option_overrides = options
    if count > 1:
        build = compile_options.executable_build_options
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        build.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(1, count))
    client, together = devices[0].client, xla_client.DeviceList(tuple(devices))
    compile_with = client.compile_and_load if attached else client.compile  # The CPU's knows only the former.
    executable = compile_with(module, executable_devices=together, compile_options=compile_options)
    return full_text(executable)


@functools.lru_cache(maxsize=16)
def _devices(target_config: str, count: int) -> tuple[Any, ...]:
    topology = get_topology_desc(
        platform="cuda", topology_name="", target_config=target_config, topology=f"1x1x{count}"
    )
    return tuple(topology.devices)


if __name__ == "__main__":
    serve(answer)
