"""What could run in place of a unit: its kernels as planned, one for each of their parts, and other schedules."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.backend.compile.headers import headers
from jax_stitch.devices import Device
from jax_stitch.emit import KernelRefused, emit, structure
from jax_stitch.jit.tune.units import Unit
from jax_stitch.latency.clusters import in_clusters
from jax_stitch.pipeline import StitchedKernel
from jax_stitch.schedule import ScheduledKernel, alternatives, schedule
from jax_stitch.schedule.template import Template, templates_of
from jax_stitch.util import store
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.template_error import TemplateError

_logger = logging.getLogger(__name__)

_MOST = {Autotune.TOP3: 3, Autotune.ALL: 12}
"""Candidates for a unit, what was planned among them."""


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to compute what a unit computes."""

    name: str
    kernels: tuple[StitchedKernel, ...]

    @property
    def key(self) -> str:
        """Return a hash of the sources of its kernels, whatever HLO called their values."""
        sources = [repr(structure(k.source)) for k in self.kernels]
        return store.key(kind="stitched", kernels=sources, headers=dict(headers()))


def planned(unit: Unit) -> Contender:
    """Return a unit as it was planned."""
    return Contender("; ".join(str(t) for k in unit.kernels for t in templates_of(k.scheduled)), unit.kernels)


def candidates(unit: Unit, device: Device, choice: Autotune) -> tuple[Contender, ...]:
    """Return the ways to compute a unit on ``device``, the planned one first, then those nearest to it."""
    by_key: dict[str, Contender] = {}
    for candidate in _candidates(unit, device):
        if candidate is None:
            continue
        by_key.setdefault(candidate.key, candidate)
        if len(by_key) == _MOST[choice]:
            break
    return tuple(by_key.values())


def _candidate(name: str, kernels: Iterable[StitchedKernel]) -> Contender | None:
    """Return the candidate, or None if the check of a kernel fails."""
    try:
        return Contender(name, tuple(kernels))
    except KernelRefused as refusal:
        _logger.warning("%s", refusal)
        return None


def _candidates(unit: Unit, device: Device) -> Iterator[Contender | None]:
    yield planned(unit)
    if any(k.scheduled.asked for k in unit.kernels):  # The user has chosen.
        return
    if any(len(k.scheduled.parts) > 1 for k in unit.kernels):
        yield _candidate("apart", (p for k in unit.kernels for p in _apart(k, device)))
    largest = max(unit.kernels, key=lambda k: k.scheduled.bytes_read + k.scheduled.bytes_written)
    for template in alternatives(largest.scheduled, device):
        other = _laid_out(largest.scheduled, device, template)
        if other is not None:
            kernels = (_like(largest, other) if k is largest else k for k in unit.kernels)
            yield _candidate(str(template), kernels)


def _apart(kernel: StitchedKernel, device: Device) -> Iterator[StitchedKernel]:
    """Yield each part of a kernel as a launch of its own."""
    graph = kernel.scheduled.graph
    for n, part in enumerate(kernel.scheduled.parts):
        pattern: Sequence[Pattern] = (replace(part.pattern, phase=0),)
        alone = schedule(graph, pattern, device, f"{kernel.scheduled.name}_{n}")
        yield _like(kernel, in_clusters(alone, device))


def _laid_out(kernel: ScheduledKernel, device: Device, template: Template) -> ScheduledKernel | None:
    try:
        patterns = [p.pattern for p in kernel.parts]
        scheduled = schedule(kernel.graph, patterns, device, kernel.name, templates=(template,))
    except TemplateError:  # Beside the other parts of the kernel it cannot be had.
        return None
    return replace(scheduled, asked=())  # By nobody.


def _like(kernel: StitchedKernel, scheduled: ScheduledKernel) -> StitchedKernel:
    return replace(kernel, scheduled=scheduled, source=emit(scheduled))
