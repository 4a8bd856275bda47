"""XLA's GPU compiler for GPUs that are only described, in a child process that is kept for further programs."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Mapping

from jax_stitch.capture.errors import CaptureError, CudaPluginMissing
from jax_stitch.child import ChildFailed, Keeper, encode

Option = str | bool | int | float
"""Value of an XLA option."""

_TIMEOUT = 600.0

COMPILER = Keeper("jax_stitch.capture.worker", {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_PLATFORMS": "cpu"})


def compile_described(
    program: bytes, target_config: str, options: Mapping[str, Option], timeout: float = _TIMEOUT
) -> str:
    """Optimized HLO text of a StableHLO module (MLIR bytecode) for a GPU that is described, in the compiler process.

    Raises ``CudaPluginMissing``, or ``CaptureError`` with XLA's words; also where the process died or took more than
    ``timeout`` seconds, in which case the next call starts another.
    """
    if not cuda_plugin_installed():
        raise CudaPluginMissing
    request = encode({"target_config": target_config, "options": list(options.items())}, program)
    try:
        header, payload = COMPILER.ask(request, timeout)
    except ChildFailed as failure:
        raise CaptureError(f"XLA's GPU compiler {failure}") from None
    text = payload.decode()
    if not header["ok"]:
        raise CaptureError(f"XLA's GPU compiler failed: {text}")
    return text


def cuda_plugin_installed() -> bool:
    """Whether a PJRT plugin of JAX for CUDA (12 or 13) can be imported."""
    plugins = importlib.util.find_spec("jax_plugins")
    if plugins is None or plugins.submodule_search_locations is None:
        return False
    return any(m.name.startswith("xla_cuda") for m in pkgutil.iter_modules(plugins.submodule_search_locations))
