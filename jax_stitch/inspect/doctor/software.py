"""Which versions there are, and what is known to be wrong with them."""

from __future__ import annotations

import platform
from importlib import metadata

import jaxlib
import numpy

from jax_stitch.inspect.doctor.machine import NO_DEVICE, platform_in_use
from jax_stitch.inspect.doctor.model import Finding
from jax_stitch.jit.known_faults import Effect, Fault, applying
from jax_stitch.jit.other_jax import report
from jax_stitch.version import __version__

_OTHER = "functions run as plain jax.jit: install a JAX that is tested, or a newer jax_stitch"

_PLUGINS = ("jax-cuda12-pjrt", "jax-cuda12-plugin", "jax-cuda13-pjrt", "jax-cuda13-plugin")


def versions() -> tuple[Finding, ...]:
    """Return the versions, and whether the tests have run with this JAX."""
    state = report()
    advice = "" if state["tested"] else f"tested is {state['works_with']}: see the trial of this JAX below"
    found = [
        Finding("jax_stitch", __version__),
        Finding("jax", f"{state['jax']}, {'tested' if state['tested'] else 'not tested'}", advice),
        Finding("jaxlib", state["jaxlib"]),
        Finding("numpy", numpy.__version__),
        Finding("python", platform.python_version()),
    ]
    for name in _PLUGINS:
        try:
            found.append(Finding(name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def trial() -> tuple[Finding, ...]:
    """Return what is known of how well this package works on a JAX that its tests have not run with."""
    state = report()
    if state["faulty_names"]:
        return tuple(Finding("missing or changed", name, _OTHER) for name in state["faulty_names"])
    if state["tested"]:
        return (Finding("needed", "no: the tests have run with this version"),)
    verdict = state["canary"] or "none yet: a small program is tried when a function is first called"
    return (Finding("verdict", verdict, "" if state["canary"] in ("passed", None) else _OTHER),)


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
