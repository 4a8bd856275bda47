"""Which versions there are, and what is known to be wrong with them."""

from __future__ import annotations

import platform
from importlib import metadata

import jax
import jaxlib
import numpy

from jax_stitch.doctor.machine import NO_DEVICE, platform_in_use
from jax_stitch.doctor.model import Finding
from jax_stitch.known_faults import Effect, Fault, applying
from jax_stitch.known_faults.table import version_numbers
from jax_stitch.version import __version__

TESTED = ((0, 10), (0, 11), (0, 12))
"""The versions of JAX that all tests run with."""

_PLUGINS = ("jax-cuda12-pjrt", "jax-cuda12-plugin", "jax-cuda13-pjrt", "jax-cuda13-plugin")


def versions() -> tuple[Finding, ...]:
    """Return the versions, and whether we test with this JAX."""
    is_tested = version_numbers(jax.__version__)[:2] in TESTED
    known = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
    advice = "" if is_tested else f"JAX Stitch is tested with jax {known}: install one of these if something goes wrong"
    found = [
        Finding("jax_stitch", __version__),
        Finding("jax", f"{jax.__version__}, {'tested' if is_tested else 'not tested'}", advice),
        Finding("jaxlib", jaxlib.__version__),
        Finding("numpy", numpy.__version__),
        Finding("python", platform.python_version()),
    ]
    for name in _PLUGINS:
        try:
            found.append(Finding(name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def known_faults() -> tuple[Finding, ...]:
    """Return the rows of the table that apply to this version and these devices."""
    platform = platform_in_use()
    if platform is None:
        return (NO_DEVICE,)
    return tuple(map(_finding, applying(jaxlib.__version__, (platform,)))) or (Finding("none", "none is known"),)


def _finding(fault: Fault) -> Finding:
    effect = "" if fault.effect is Effect.SLOW else f"{fault.effect.value}, "
    flags = f"\nXLA_FLAGS={fault.flags}" if fault.flags else ""
    return Finding(fault.name, f"{fault.title} ({effect}{fault.place}; {fault.versions})", f"{fault.remedy}{flags}")
