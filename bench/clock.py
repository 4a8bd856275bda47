"""When a command began, for its budget: what started it may count from before its imports."""

from __future__ import annotations

import os
import time

BEGUN = "BENCH_BEGUN"
"""An environment variable: ``time.monotonic()``, which all processes of a machine share, as the command was started."""


def begun() -> float:
    """That time, or now."""
    return float(os.environ.get(BEGUN) or time.monotonic())
