"""Where a time was measured: a device with its driver, compilers and options. Elsewhere it says nothing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import jax

from jax_stitch.backend.compile.surroundings import surroundings
from jax_stitch.devices import Device
from jax_stitch.util import store

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Station:
    """A device in the surroundings that its times were measured in."""

    key: str
    """A hash of all that they depend on, besides the kernels."""
    device: str
    driver: str

    def __str__(self) -> str:
        return f"{self.device}; {self.driver}"


def station_of(device: Device) -> Station:
    """Return the station that ``device``, attached to this process, is now."""
    driver = _driver(device)
    name = f"{device.name}: {device.description}, {device.multiprocessors}"
    return Station(store.key(kind="station", driver=driver, **surroundings(device)), name, driver)


def _driver(device: Device) -> str:
    """Return the GPU's driver as it names itself, and JAX's runtime; of a CPU XLA's own version."""
    platform = device.target.platform
    runtime = jax.local_devices(backend=platform)[0].client.platform_version
    words = [" ".join(runtime.split())]
    if not device.target.is_host:
        with contextlib.suppress(OSError, IndexError):  # Not on Linux; the runtime names the driver's interface.
            words.insert(0, _DRIVER.read_text(encoding="utf-8", errors="replace").splitlines()[0])
    return "; ".join(words)
