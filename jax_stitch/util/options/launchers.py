"""The ways to launch a kernel on a GPU that there are, and which of them the user asks for."""

from __future__ import annotations

import os
from enum import StrEnum

from jax_stitch.util.suggestion import WrongOption, suggestion

LAUNCHER_VARIABLE = "JAX_STITCH_LAUNCHER"
"""The way for all kernels of a process; without it, the first that works."""


class Launcher(StrEnum):
    """The values of ``$JAX_STITCH_LAUNCHER``."""

    PTX = "ptx"
    """XLA's own custom call for PTX: an ordinary launch of XLA's, with no code of ours in between."""
    FFI = "ffi"
    """Our handler, which is compiled at its first use: machine code, and cooperative launches."""


def launcher_asked() -> Launcher | None:
    """Return what the variable says now, if anything. Raise ``WrongOption`` for what is no launcher."""
    text = os.environ.get(LAUNCHER_VARIABLE)
    if not text:
        return None
    try:
        return Launcher(text)
    except ValueError:
        known = ", ".join(repr(launcher.value) for launcher in Launcher)
        meant = suggestion(text, Launcher)
        raise WrongOption(f"${LAUNCHER_VARIABLE} is {text!r}, which is none of {known}{meant}") from None
