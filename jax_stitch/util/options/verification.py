"""Whether new kernels are compared with XLA: ``verify=`` and its environment variable."""

from __future__ import annotations

import os
from enum import Enum

from jax_stitch.util.suggestion import WrongOption

VARIABLE = "JAX_STITCH_VERIFY"
"""Set to 1, kernels of functions that do not say are verified."""


class Verify(Enum):
    """What becomes of a kernel whose results differ from XLA's by more than rounding."""

    OFF = "off"
    """It is not looked at."""
    REFUSE = "refuse"
    """Its operations are left to XLA, with a warning."""
    RAISE = "raise"
    """``WrongKernel`` is raised: the function is strict."""


class WrongKernel(RuntimeError):
    """A kernel computes something else than XLA does of the same operations. The message names them."""


def verify_for(asked: bool | None, strict: bool) -> Verify:
    """Return what ``verify=`` asks for; if it says nothing, what the environment does. Raise ``ValueError``."""
    if asked is None:
        said = os.environ.get(VARIABLE) or "0"
        if said not in ("0", "1"):
            raise WrongOption(f"${VARIABLE} is {said!r}, which is none of '1', '0'")
        asked = said == "1"
    if not isinstance(asked, bool):
        raise WrongOption(f"verify is {asked!r}, which is none of True, False")
    if not asked:
        return Verify.OFF
    return Verify.RAISE if strict else Verify.REFUSE
