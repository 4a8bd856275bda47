"""`python -m tests.fuzz --seconds 600 --seed 1`: random programs of JAX, plain and stitched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SETTINGS = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "JAX_PLATFORMS": "cpu",
    "PYTHONHASHSEED": "0",  # One seed, one program.
    "MALLOC_PERTURB_": "165",  # What is read before it is written, or after it is freed, shows.
    "JAX_STITCH_CACHE_DIR": str(Path(__file__).resolve().parents[2] / ".pytest_cache" / "jax_stitch"),
}
"""Read when Python, the C library and JAX start."""

if __name__ == "__main__":
    if any(name not in os.environ for name in SETTINGS):
        os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
        os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]])
    from tests.fuzz.command import main

    sys.exit(main(sys.argv[1:]))
