"""Kernels that our own check refuses are left to XLA."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType

from jax_stitch.jit.tune.without import without
from jax_stitch.pipeline import Stitched

_logger = logging.getLogger(__name__)


def sound(stitched: Stitched) -> Stitched:
    """Return ``stitched`` without the kernels that are refused, each of which a note on the plan names."""
    if not stitched.refused:
        return stitched
    left = without(stitched, dict.fromkeys(stitched.refused, "the check of its kernel fails"))
    notes = tuple(
        f"{told}. What it would compute is left to XLA. This is a fault of JAX Stitch: please report it"
        for told in stitched.refused.values()
    )
    for note in notes:
        _logger.warning("%s", note)
    return replace(left, refused=MappingProxyType({}), plan=replace(left.plan, notes=(*left.plan.notes, *notes)))
