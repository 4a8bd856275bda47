"""What has to be set before Python, the C library and JAX start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SETTINGS = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_STITCH_MODE": "now",  # Kernels are wanted at the first call, whatever they are worth.
    "PYTHONHASHSEED": "0",  # One seed, one program.
    "PYTHONWARNINGS": "ignore:os.fork:RuntimeWarning",
    "MALLOC_PERTURB_": "165",  # What is read before it is written, or after it is freed, shows.
    "JAX_STITCH_CACHE_DIR": str(Path(__file__).resolve().parents[2] / ".pytest_cache" / "jax_stitch"),
}


def apply(module: str) -> None:
    """Starts this process anew with these settings, if it lacks any."""
    if any(name not in os.environ for name in SETTINGS):
        os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
