"""What has to be the same in two processes for the kernels of one to be those that the other would make."""

from __future__ import annotations

from jax_stitch.backend.compile.compilers import compilers
from jax_stitch.devices import Device
from jax_stitch.jit.programs.source import source


def conditions(device: Device) -> dict[str, object]:
    """Return the conditions of this process, as JSON values."""
    return compilers(device) | {"source": source()}
