"""CuPy, if it is installed; else what to install."""

from __future__ import annotations

import functools
from typing import Any

from jax_stitch.util.user_errors import UserError


class CupyMissing(UserError, RuntimeError):
    """CuPy is not installed, or cannot be imported; the message has the command that installs it."""


@functools.cache
def cupy() -> Any:
    """Return the module. Raises ``CupyMissing``."""
    try:
        import cupy as module
    except Exception as error:  # Its own parts may lack a library of CUDA's, which it says in several ways.
        raise CupyMissing(
            "CuPy, which asks an attached GPU for its properties and times kernels, cannot be imported "
            f"({str(error).strip().splitlines()[0] if str(error).strip() else repr(error)}): "
            "`pip install cupy-cuda13x` (CUDA 13) or `pip install cupy-cuda12x` (CUDA 12)"
        ) from error
    return module


def is_usable() -> bool:
    """Return whether CuPy is there and sees a GPU."""
    try:
        return bool(cupy().cuda.is_available())
    except Exception:  # Whatever is wrong with it: it is not needed to run a program.
        return False
