"""The name under which the verdict on a call is kept: found before anything is compiled or measured."""

from __future__ import annotations

from typing import Any

import jax

from jax_stitch import devices, store
from jax_stitch.compile.surroundings import surroundings
from jax_stitch.jit.primitive import Request
from jax_stitch.programs.source import stamp

_MOST_CONSTANTS = 8 << 20
"""Bytes of arrays in a program that are still hashed: it is to cost next to nothing beside XLA's compilation."""


def call_name(traced: jax.stages.Traced, origin: Request) -> str | None:
    """A hash of what ``jax.jit`` would run, of what decides how it is stitched, and of all tools; None where that would
    take too long. JAX keeps what is lowered here for the call itself."""
    if sum(getattr(constant, "nbytes", 0) for constant in traced.jaxpr.consts) > _MOST_CONSTANTS:
        return None
    config: Any = jax.config  # whose typing lacks its flags
    return store.key(
        kind="call",
        program=traced.lower().as_text(debug_info=bool(config.jax_compilation_cache_include_metadata_in_key)),
        planner=origin.planner,
        templates=origin.templates,
        autotune=origin.autotune,
        verify=origin.verify.value,
        source=stamp(),
        **surroundings(devices.in_use_unmeasured()),
    )
