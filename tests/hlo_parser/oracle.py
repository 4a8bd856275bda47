"""XLA's own parser and printer, from jaxlib."""

from __future__ import annotations

import re

import numpy as np
from jaxlib import _hlo


def exact(text: str) -> str:
    """The module as XLA prints it after reading it, with all constants."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return _hlo.hlo_module_from_text(text).to_string(options)


def canonical(text: str) -> str:
    """XLA's canonical form of the module: equal for modules that do the same with the same names of computations."""
    options = _hlo.HloPrintOptions.canonical()
    options.print_large_constants = True
    return _hlo.hlo_module_from_text(text).to_string(options)


def compiled(text: str) -> str:
    """Compile the module for the CPU; raises where XLA's verifiers, of MLIR or of HLO, or its compiler refuse it."""
    import jax
    from jaxlib import _jax

    devices = jax.devices("cpu")
    module = _hlo.XlaComputation(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    options = _jax.CompileOptions()
    build = options.executable_build_options
    for key in ("num_replicas", "num_partitions"):
        count = re.match(rf"HloModule[^\n]*{'replica_count' if key == 'num_replicas' else key}=(\d+)", text)
        if count:
            setattr(options, key, int(count[1]))
            setattr(build, key, int(count[1]))
    build.use_spmd_partitioning = options.num_partitions > 1
    used = options.num_replicas * options.num_partitions
    build.device_assignment = _jax.DeviceAssignment.create(
        np.arange(used).reshape(options.num_replicas, options.num_partitions)
    )
    mlir = _jax.mlir.xla_computation_to_mlir_module(module)
    devices[0].client.compile_and_load(mlir, devices[:used], options)
    return "compiled"
