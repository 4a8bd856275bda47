"""XLA:CPU itself, run on HLO text: the oracle for operations that no JAX function leads to."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jaxlib.xla_client
import numpy as np
from jaxlib import _hlo, _jax


def run(text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    device = jax.devices("cpu")[0]
    executable = device.client.compile_and_load(
        _jax.mlir.hlo_to_stablehlo(proto), _jax.DeviceList((device,)), jaxlib.xla_client.CompileOptions()
    )
    with jax.enable_x64(True):
        buffers = [jax.device_put(a, device) for a in arguments]
    results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(parts[0]) for parts in results]
