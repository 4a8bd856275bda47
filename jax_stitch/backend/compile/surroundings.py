"""What compiled code depends on besides the program: the device, compilers, versions and options of this process."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import jax

from jax_stitch.backend.compile.compilers import compilers
from jax_stitch.devices import Device
from jax_stitch.util.xla_versions import xla_versions

_MEASURED = ("clock_ghz", "memory_bandwidth", "memory_bytes")
"""Facts of a CPU that differ a little each time they are asked for. A plan made for the others' sake is no worse."""
JAX_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
    "jax_optimization_level",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_memory_fitting_level",
    "jax_cpu_enable_fast_math",
)
"""What of JAX's configuration XLA's optimized HLO depends on, besides the program."""
_ENVIRONMENT = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")


def surroundings(device: Device) -> dict[str, object]:
    """Return all of that for ``device``, as JSON values."""
    config: Any = jax.config  # whose typing lacks its flags
    return {
        "device": facts(device),
        **compilers(device),
        "versions": [*xla_versions()],
        "options": {name: str(getattr(config, name, None)) for name in JAX_OPTIONS},
        "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
    }


def facts(device: Device) -> dict[str, object]:
    """Return a device's description, less what is another each time that it is measured."""
    description = asdict(device)
    if device.target.is_host:
        for measured in _MEASURED:
            del description[measured]
    return description
