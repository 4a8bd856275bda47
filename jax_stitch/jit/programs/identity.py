"""What a rebuilt program depends on, as the name of its entry on disk."""

from __future__ import annotations

from typing import Any

import jax

from jax_stitch.backend.compile.surroundings import facts, surroundings
from jax_stitch.backend.launch import choice
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import Capture
from jax_stitch.jit.library import station_of
from jax_stitch.jit.programs.source import source
from jax_stitch.util import store
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify


def entry_name(
    captured: Capture,
    device: Device,
    scheduled_for: Device,
    planner: PlannerName,
    templates: str = "",
    autotune: Autotune = Autotune.OFF,
    verify: Verify = Verify.OFF,
    sparing: bool = False,
) -> str:
    """Return a hash of the program, what it is planned with, the devices that it runs on and is laid out for, all
    tools.

    Where times have decided, the driver too: they were of that one.
    """
    config: Any = jax.config  # whose typing lacks its flags
    names = config.jax_compilation_cache_include_metadata_in_key  # as in JAX's own cache
    return store.key(
        kind="program",
        program=captured.stablehlo(names),
        given=None if captured.given is None else captured.given.text,
        scheduled_for=facts(scheduled_for),
        planner=planner,
        templates=templates,
        autotune=autotune,
        verify=verify.value,
        sparing=sparing,
        launcher=None if device.target.is_host else choice.in_use().value,
        station=None if autotune is Autotune.OFF else station_of(device).key,
        source=source(),
        **surroundings(device),
    )
