"""XLA's compiler in a child process that is kept for further programs: for GPUs that are only described, and for
programs whose calls only somebody else's process knows."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Mapping

from jax_stitch.frontend.capture.errors import CaptureError, CudaPluginMissing
from jax_stitch.util.child import ChildFailed, Keeper, encode

Option = str | bool | int | float
"""Value of an XLA option."""

_TIMEOUT = 600.0

COMPILER = Keeper(
    "jax_stitch.frontend.capture.worker", {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_PLATFORMS": "cpu"}
)


def compile_described(
    program: bytes, target_config: str | None, options: Mapping[str, Option], timeout: float = _TIMEOUT
) -> str:
    """Return the optimized HLO text of a StableHLO module (MLIR bytecode) for a GPU that is described, or for the CPU
    where it is None, as the compiler process makes it.

    That compiles also what calls functions that nobody has registered. Raises ``CudaPluginMissing``, or
    ``CaptureError`` with XLA's words; also where the process died or took more than ``timeout`` seconds, in which case
    the next call starts another.
    """
    if target_config is not None and not cuda_plugin_installed():
        raise CudaPluginMissing
    kind = "CPU" if target_config is None else "GPU"
    request = encode({"target_config": target_config, "options": list(options.items())}, program)
    try:
        header, payload = COMPILER.ask(request, timeout)
    except ChildFailed as failure:
        raise CaptureError(f"XLA's {kind} compiler {failure}") from None
    text = payload.decode()
    if not header["ok"]:
        raise CaptureError(f"XLA's {kind} compiler failed: {text}")
    return text


def cuda_plugin_installed() -> bool:
    """Return whether a PJRT plugin of JAX for CUDA (12 or 13) can be imported."""
    plugins = importlib.util.find_spec("jax_plugins")
    if plugins is None or plugins.submodule_search_locations is None:
        return False
    return any(m.name.startswith("xla_cuda") for m in pkgutil.iter_modules(plugins.submodule_search_locations))
