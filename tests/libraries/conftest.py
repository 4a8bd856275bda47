"""Settings that must be made before the libraries are imported."""

from __future__ import annotations

import os

# Equinox and diffrax check values on the device. Read on import: a failed check makes NaNs instead of a callback.
os.environ.setdefault("EQX_ON_ERROR", "nan")
