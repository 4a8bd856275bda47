"""When a function under ``stitch_jit`` is stitched: beside its first calls, at the first one, or not at all."""

from __future__ import annotations

import os
from enum import StrEnum

from jax_stitch.util.suggestion import WrongOption, suggestion

MODE_VARIABLE = "JAX_STITCH_MODE"
"""The mode of functions that do not say theirs; "off" is for all functions, whatever they say."""


class Mode(StrEnum):
    """The values of ``mode=`` and of ``$JAX_STITCH_MODE``."""

    AUTO = "auto"
    """Calls run plain ``jax.jit`` until the stitched program is ready; then real calls show which is faster."""
    NOW = "now"
    """The first call waits for the stitched program, as the first call of ``jax.jit`` waits for XLA."""
    ASYNC = "async"
    """Calls run plain ``jax.jit`` until the stitched program is ready, then that one, however fast it is."""
    OFF = "off"
    """Plain ``jax.jit``."""


def mode_for(asked: str | None) -> Mode:
    """Return the mode of a function that asks for one, or for none. ``ValueError`` for what is no mode, also in the
    variable.

    The variable is read now: at import, for a decorated function of a module.
    """
    general = os.environ.get(MODE_VARIABLE)
    modes = [_parse(asked, "mode"), _parse(general or None, f"${MODE_VARIABLE}")]
    if Mode.OFF in modes:
        return Mode.OFF
    return next((mode for mode in modes if mode is not None), Mode.AUTO)


def _parse(text: str | None, place: str) -> Mode | None:
    if text is None:
        return None
    try:
        return Mode(text)
    except ValueError:
        known = ", ".join(repr(mode.value) for mode in Mode)
        meant = suggestion(str(text), Mode)
        raise WrongOption(f"{place} is {text!r}, which is none of {known}{meant}") from None
