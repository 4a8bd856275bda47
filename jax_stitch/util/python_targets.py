"""By which names JAX's programs call Python functions."""

from __future__ import annotations

GPU_TARGET = "xla_ffi_python_gpu_callback"
_TARGETS = frozenset({"xla_ffi_python_cpu_callback", GPU_TARGET})


def is_python_call(target: str) -> bool:
    """Return whether a custom call's target is that of JAX's calls of Python functions."""
    return target in _TARGETS
