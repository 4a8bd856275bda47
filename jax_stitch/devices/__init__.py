"""The devices that JAX Stitch can plan for: the CPU of this machine, and GPUs and CPUs that are only described.

``get("h200")`` needs no GPU; ``get()`` is the device that JAX uses by default.
"""

from __future__ import annotations

import difflib

from jax_stitch.devices.cpu import cpu, described, unmeasured
from jax_stitch.devices.in_use import describe
from jax_stitch.devices.model import Device
from jax_stitch.devices.table import entries
from jax_stitch.util.user_errors import UserError

__all__ = ["Device", "UnknownDeviceError", "get", "in_use_unmeasured", "names"]


class UnknownDeviceError(UserError, ValueError):
    """No device of that name is known."""

    def __init__(self, name: str) -> None:
        known = names()
        nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"no device is named {name!r}.{hint} Known: {', '.join(known)}; None for the one JAX uses.")


def names() -> tuple[str, ...]:
    """Return the names that ``get`` takes."""
    return ("cpu", *described(), *entries())


def in_use_unmeasured() -> Device:
    """Return the default device of JAX, without what would have to be measured first."""
    import jax

    return unmeasured() if jax.default_backend() == "cpu" else get()


def get(name: str | None = None) -> Device:
    """Return the device of that name (in any case), or for ``None`` the default one of JAX.

    ``attached`` is True on the CPU and on the GPU that JAX uses by default, under whichever name it was asked for.
    Raises ``UnknownDeviceError``.
    """
    wanted = name.lower() if name is not None else None
    if wanted == "cpu":
        return cpu()
    if wanted is not None and wanted in described():
        return described()[wanted]
    if wanted is not None and wanted not in names():
        raise UnknownDeviceError(str(name))
    import jax

    gpu = describe(jax.devices()[0], entries()) if jax.default_backend() == "gpu" else None
    if wanted is None:
        return gpu or cpu()
    return gpu if gpu is not None and gpu.name == wanted else entries()[wanted].device
