"""The name under which the verdict on a call is kept: found before anything is lowered, compiled or measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax

from jax_stitch import devices
from jax_stitch.backend.compile.surroundings import surroundings
from jax_stitch.backend.launch import native
from jax_stitch.devices.cpu import unmeasured
from jax_stitch.jit.primitive import Request
from jax_stitch.jit.programs.source import stamp
from jax_stitch.jit.tiers.written_program import written
from jax_stitch.util import store

_PACKAGE = stamp()
"""Which package this process has: its files as they were when it was imported."""
_MOST_CONSTANTS = 8 << 20
"""Bytes of arrays in a program that are still hashed: it is to cost next to nothing beside XLA's compilation."""
_OF_NO_PROGRAM = ("cache", "log", "traceback", "dump", "distributed", "proxy", "platforms", "explain")
"""Parts of the names of those options of JAX by which it lowers no program otherwise."""


def look_around() -> None:
    """Find what is part of all names on a CPU, and what runs kernels there, if that was made before: this takes
    milliseconds the first time, which a first call would miss.
    """
    surroundings(unmeasured())
    with suppress(OSError):  # Whoever needs it is told.
        native.at_hand()


def call_name(
    traced: jax.stages.Traced, origin: Request, arguments: Sequence[Any], jit_options: Mapping[str, Any]
) -> str | None:
    """Return a hash of what ``jax.jit`` with these options would run for these arguments, of what decides how it is
    stitched, and of all tools; None where that would take too long.
    """
    if sum(getattr(constant, "nbytes", 0) for constant in traced.jaxpr.consts) > _MOST_CONSTANTS:
        return None
    config: Any = jax.config  # whose typing lacks its flags
    with_places = bool(config.jax_compilation_cache_include_metadata_in_key)
    program = None if with_places else written(traced, arguments, jit_options)
    if program is None:  # JAX keeps what is lowered here for the call itself.
        program = traced.lower().as_text(debug_info=with_places).encode()
    return store.key(
        kind="call",
        program=hashlib.sha256(program).hexdigest(),
        configuration=_configuration(),
        planner=origin.planner,
        templates=origin.templates,
        autotune=origin.autotune,
        verify=origin.verify.value,
        source=_PACKAGE,
        **surroundings(devices.in_use_unmeasured()),
    )


def _configuration() -> dict[str, str]:
    """Return JAX's options, of which some are asked for only when a program is lowered."""
    config: Any = jax.config
    names = [name for name in config.values if not any(part in name for part in _OF_NO_PROGRAM)]
    return {name: str(getattr(config, name, None)) for name in names}
