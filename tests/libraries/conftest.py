"""Settings that must be made before the libraries are imported, and kernels that are compiled quickly."""

from __future__ import annotations

import os

from tests.light import light

__all__ = ["light"]

# Equinox and diffrax check values on the device. Read on import: a failed check makes NaNs instead of a callback.
os.environ.setdefault("EQX_ON_ERROR", "nan")
