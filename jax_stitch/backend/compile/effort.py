"""How hard compilers may work the machine: as hard as they can while somebody waits, else without being noticed; and
for how long."""

from __future__ import annotations

import math
import os
import warnings
from contextvars import ContextVar

low: ContextVar[bool] = ContextVar("jax_stitch_low_effort", default=False)
"""Whether nobody waits for what this thread compiles: one kernel at a time, at a low priority."""

NICENESS = "10"
"""Beside one thread of usual priority that never rests, a compiler then gets about a tenth of a core; at 19, a 70th."""

budget: ContextVar[float] = ContextVar("jax_stitch_budget", default=math.inf)
"""Seconds of processor time that another process may spend on what nobody waits for."""

planning: ContextVar[float] = ContextVar("jax_stitch_planning", default=0.08)
"""Where nobody has asked for the best plan: what may go into looking for it, of the processor time that XLA took for
the program that is planned. What a piece of a program misses most is looked for first.
Processes that have to make the same plan must not go by their clocks: infinity."""

kernel: ContextVar[int | None] = ContextVar("jax_stitch_compiles_a_kernel", default=None)
"""The characters of the kernel that this thread compiles, without which a function can do; None for what it cannot."""

TIMEOUT_VARIABLE = "JAX_STITCH_COMPILE_TIMEOUT"
_SECONDS, _OF_KERNEL = 60.0, 20.0
_PER_SECOND = 6000
"""Characters of a long kernel that a compiler gets a second for: a decoder whose whole loop is one has 250,000, and
takes NVRTC half a minute."""


def seconds() -> float:
    """Return how long one run of a compiler may take, without what it waits for a processor:
    ``$JAX_STITCH_COMPILE_TIMEOUT``, else a minute, or a third of one for a kernel, more for a long one; infinity for
    ``inf``.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    characters = kernel.get()
    usual = _SECONDS if characters is None else min(_SECONDS, max(_OF_KERNEL, characters / _PER_SECOND))
    if not text:
        return usual
    try:
        allowed = float(text)
    except ValueError:
        allowed = math.nan
    if not allowed > 0:
        warnings.warn(f"{TIMEOUT_VARIABLE} is {text!r}: write seconds, as in 60, or inf.", stacklevel=2)
        return usual
    return allowed
