"""How much is measured before a function is stitched: nothing, the three best candidates, or all of them."""

from __future__ import annotations

import os
from enum import StrEnum

from jax_stitch.util.suggestion import suggestion
from jax_stitch.util.user_errors import UserError

AUTOTUNE_VARIABLE = "JAX_STITCH_AUTOTUNE"
"""What functions do that do not say themselves."""


class Autotune(StrEnum):
    """The meanings of ``autotune=`` and of ``$JAX_STITCH_AUTOTUNE``."""

    OFF = "off"
    """Plans are made by prediction alone."""
    TOP3 = "top3"
    """The first three candidates for each kernel are timed, and XLA's own kernels for the same operations."""
    ALL = "all"
    """All candidates that there are."""


class UnknownAutotuneError(UserError, ValueError):
    """A value that is none of ``autotune``'s. The message lists those that there are."""


_ARGUMENT = {True: Autotune.ALL, False: Autotune.OFF, "top3": Autotune.TOP3}
_VARIABLE = {"1": Autotune.ALL, "0": Autotune.OFF, "top3": Autotune.TOP3}


def autotune_for(asked: bool | str | None) -> Autotune:
    """Return what a function that asks for this, or (with ``None``) for nothing, gets. The variable is read now.

    Raises ``UnknownAutotuneError``, also for what the variable says.
    """
    if isinstance(asked, Autotune):
        return asked
    if asked is not None:
        return _known(asked, _ARGUMENT, "autotune")
    return _known(os.environ.get(AUTOTUNE_VARIABLE) or "0", _VARIABLE, f"${AUTOTUNE_VARIABLE}")


def _known(value: object, values: dict[object, Autotune] | dict[str, Autotune], place: str) -> Autotune:
    for known, meaning in values.items():
        if type(known) is type(value) and known == value:
            return meaning
    meant = suggestion(value, (v for v in values if isinstance(v, str))) if isinstance(value, str) else ""
    raise UnknownAutotuneError(f"{place} is {value!r}, which is none of {', '.join(map(repr, values))}{meant}")
