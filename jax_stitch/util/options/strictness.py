"""Whether a function that cannot be stitched raises, or runs as plain ``jax.jit`` with a warning."""

from __future__ import annotations

import os

from jax_stitch.util.suggestion import WrongOption

STRICT_VARIABLE = "JAX_STITCH_STRICT"
"""What functions do that do not say themselves: 1 or 0."""


def strict_for(asked: bool | None) -> bool:
    """Return what a function that asks for this, or (with ``None``) for nothing, gets. The variable is read now.

    Raises ``ValueError`` for what is neither, also in the variable.
    """
    if asked is not None:
        if not isinstance(asked, bool):
            raise WrongOption(f"strict is {asked!r}, which is none of True, False")
        return asked
    general = os.environ.get(STRICT_VARIABLE) or "0"
    if general not in ("0", "1"):
        raise WrongOption(f"${STRICT_VARIABLE} is {general!r}, which is none of '1', '0'")
    return general == "1"
