"""How much processor time may go into a program that nobody waits for."""

from __future__ import annotations

import math
import os
import warnings

BUDGET_VARIABLE = "JAX_STITCH_BUDGET"
"""Seconds of processor time for one program, or ``inf``."""

_LEAST, _TIMES = 30.0, 4.0
"""So much for every program, and so many times what ``jax.jit`` took for its first call besides."""


def budget_for(first_call: float) -> float:
    """Return seconds of processor time for the program of a function whose first call under ``jax.jit`` took so
    long.
    """
    text = os.environ.get(BUDGET_VARIABLE, "").strip()
    usual = _LEAST + _TIMES * first_call
    if not text:
        return usual
    try:
        asked = float(text)
    except ValueError:
        asked = math.nan
    if not asked >= 0:
        warnings.warn(f"${BUDGET_VARIABLE} is {text!r}: write seconds, as in 60, or inf.", stacklevel=2)
        return usual
    return asked
