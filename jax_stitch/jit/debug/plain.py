"""A program of optimized HLO under XLA alone, which takes back neither fusions nor bitcasts that it has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hlo_parser import Module
from jax_stitch.frontend.hlo_files.opened import opened
from jax_stitch.frontend.hlo_files.translate import stablehlo_of
from jax_stitch.util.jax_names import xla_client


def run_plain(module: Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a program on the default device."""
    device: Any = jax.devices()[0]
    options = xla_client.CompileOptions()
    program = stablehlo_of(opened(module), module.name)
    executable = device.client.compile_and_load(program, xla_client.DeviceList((device,)), options)
    with jax.enable_x64(True):
        buffers = [jax.device_put(a, device) for a in arguments]
    results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(parts[0]) for parts in results]
