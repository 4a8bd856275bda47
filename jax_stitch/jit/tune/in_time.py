"""Kernels that keep a compiler busy for too long are left to XLA."""

from __future__ import annotations

import logging
from dataclasses import replace

from jax_stitch.backend.compile import CompilerTimeout, Kernel
from jax_stitch.jit.tune.resident import all_resident
from jax_stitch.jit.tune.without import without
from jax_stitch.pipeline import Stitched
from jax_stitch.util.progress import tell_count

_logger = logging.getLogger(__name__)

MOST_SLOW = 2
"""Kernels that may be given up: where more take too long, it is the compiler that hangs."""


def compiled_in_time(stitched: Stitched, target: str) -> tuple[Stitched, tuple[Kernel, ...]]:
    """Return ``stitched`` without the kernels that no compiler was done with in its time, or whose blocks wait for each
    other and do not fit the device, which notes on the plan name; and the others compiled for ``target``.

    Raises ``CompilerTimeout`` where most or all take too long, and what ``compile_all`` raises.
    """
    for _ in range(MOST_SLOW):
        try:
            return all_resident(stitched, stitched.compile_kernels(target, tell_count))
        except CompilerTimeout as slow:
            if slow.kernel is None:
                raise
            _logger.debug("%s: %s", slow.kernel, slow)
            left = _given_up(stitched, slow.kernel, str(slow))
            if not left.kernels:
                raise
            stitched = left
    return all_resident(stitched, stitched.compile_kernels(target, tell_count))


def _given_up(stitched: Stitched, name: str, told: str) -> Stitched:
    """Return it without all kernels of a source: those that are alike share it."""
    numbers = [k.number for k in stitched.kernels if k.source.name == name]
    left = without(stitched, dict.fromkeys(numbers, "a kernel of it took the compiler too long"))
    note = f"{name} is left to XLA: {told}"
    return replace(left, lasting=False, plan=replace(left.plan, notes=(*left.plan.notes, note)))
