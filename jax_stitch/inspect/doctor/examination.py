"""The examination: one section after the other, none of which may keep the others from being shown."""

from __future__ import annotations

from collections.abc import Callable

from jax_stitch.inspect.doctor.machine import cache, compiler, devices_found, launcher, plans
from jax_stitch.inspect.doctor.model import Examination, Finding, Section
from jax_stitch.inspect.doctor.software import known_faults, trial, versions
from jax_stitch.util.formatting import one_line

SECTIONS: tuple[tuple[str, Callable[[], tuple[Finding, ...]]], ...] = (
    ("versions", versions),
    ("devices", devices_found),
    ("C++ compiler", compiler),
    ("plans for GPUs that are not here", plans),
    ("cache", cache),
    ("launcher", launcher),
    ("trial of this JAX", trial),
    ("known faults of this JAX on this machine", known_faults),
)
"""In the order in which they are shown."""


def examine() -> Examination:
    """Return what there is to say of this machine. It raises nothing: what fails is a finding."""
    return Examination(tuple(_section(title, findings) for title, findings in SECTIONS))


def _section(title: str, findings: Callable[[], tuple[Finding, ...]]) -> Section:
    try:
        return Section(title, findings())
    except Exception as failure:
        said = one_line(f"{type(failure).__name__}: {failure}")
        advice = "please report this, with what JAX_STITCH_DEBUG=1 writes"
        return Section(title, (Finding("failed", said, advice),))
