"""Measuring a device's constants: what each class of instructions takes, launches, and the bandwidth curve B(V).

All by kernels of our own on small synthetic programs, so that what is measured is what kernels are made of. Times of
those that a cache holds are explained by their instructions alone (least squares of relative errors, no cost below 0).
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy.optimize import nnls

from jax_stitch.analysis.patterns.traffic import BYTES_PER_THREAD
from jax_stitch.backend.compile import compile_kernel, target_of
from jax_stitch.devices import Device
from jax_stitch.emit import emit
from jax_stitch.latency import synthetic
from jax_stitch.latency.constants import Constants, assumed
from jax_stitch.latency.model import latency
from jax_stitch.latency.synthetic import Program
from jax_stitch.latency.timing import KernelClock, clock_of, event_seconds, kernel_seconds
from jax_stitch.schedule import ScheduledKernel
from jax_stitch.util.values import replace

SECONDS = 0.15
"""To time each kernel."""

Step = Callable[[str], None]


class NotAttachedError(ValueError):
    """A device whose constants are to be measured is not there."""


@dataclass(frozen=True, slots=True)
class _Timed:
    kernel: ScheduledKernel
    seconds: float


def measure(device: Device, step: Step = lambda _: None, seconds: float = SECONDS) -> Constants:
    """Return the constants of an attached device; takes a minute or two, most of it to compile. ``step`` is told what
    is done.

    Raises ``NotAttachedError``.
    """
    if not device.attached:
        raise NotAttachedError(f"{device.name} is not attached: measure its constants on a machine that has it")
    known = assumed(device)
    curve, alone = _curve(device, step, seconds)
    (few, least), (many, most) = _launches(device, step, seconds)
    buffer = max(0.0, (most - least) / (many - few))
    launch = max(0.0, least - few * buffer)
    start = _start(dict(curve), device) if device.target.is_host else known.start
    around = launch + 2 * buffer + start if alone is None else alone
    known = replace(known, launch=launch, buffer=buffer, start=start, curve=_rates(curve, around))
    if device.target.is_host:
        timed = [t for p in synthetic.instructions() for t in _timed(p, device, step, seconds)]
        known = replace(known, issue=_issue(timed, device, known))
    timed = [t for p in synthetic.overlapping() for t in _timed(p, device, step, seconds)]
    today = datetime.date.today().isoformat()
    known = replace(known, source=f"measured on {device.description}, {device.multiprocessors} cores, {today}")
    return _with_overlap(timed, device, known)


def _timed(
    program: Program, device: Device, step: Step, seconds: float, clock: KernelClock = kernel_seconds
) -> list[_Timed]:
    """Return the program's kernel with its time; none of a program that became several, whose inputs are each
    other's.
    """
    step(f"timing {program.name}")
    kernels = program.kernels(device)
    if len(kernels) != 1:
        return []
    (kernel,) = kernels
    source = emit(kernel)
    compiled = compile_kernel(source, target_of(device))
    by_id = dict(zip(kernel.graph.parameters, program.values(), strict=True))
    arrays = [by_id[i] for i in kernel.inputs]
    return [_Timed(kernel, clock(compiled, source, arrays, device, work=None, seconds=seconds))]


def _curve(device: Device, step: Step, seconds: float) -> tuple[list[tuple[int, float]], float | None]:
    """Return seconds of copies by the bytes that they move; and what of it is no copy, where a GPU's own clock has told
    them: the time of the smallest, which moves next to nothing."""
    clock = clock_of(device)
    timings: list[tuple[int, float]] = []
    for size, program in synthetic.copies():
        timings += [(size, t.seconds) for t in _timed(program, device, step, seconds, clock)]
    return timings, timings[0][1] if clock is event_seconds else None


def _launches(device: Device, step: Step, seconds: float) -> list[tuple[int, float]]:
    """Return seconds of launches of next to no work by their number of buffers."""
    timings = []
    for count, program in synthetic.launches():
        timings += [(count, t.seconds) for t in _timed(program, device, step, seconds)]
    return timings


def _start(curve: Mapping[int, float], device: Device) -> float:
    """Return the time to make other threads begin: how much longer two take for twice the bytes than one for its
    own.
    """
    if device.multiprocessors == 1:
        return 0.0
    return max(0.0, curve[2 * BYTES_PER_THREAD] - curve[BYTES_PER_THREAD])


def _rates(curve: Sequence[tuple[int, float]], launch: float) -> tuple[tuple[int, float], ...]:
    """Return bytes per second; those of copies that take little longer than a launch cannot be told."""
    return tuple((size, size / (t - launch)) for size, t in curve if t > 2 * launch)


PRIOR = 0.05
"""The weight of the assumed cycles of a class beside a measured time: it separates what occurs together."""


def _issue(timed: Sequence[_Timed], device: Device, known: Constants) -> Mapping[str, float]:
    """Return the cycles of each class of instructions that explain the times best, none of them below 0."""
    counts: list[Counter[str]] = []
    cycles: list[float] = []
    for t in timed:
        predicted = latency(t.kernel, device, known=known)
        work: Counter[str] = Counter()
        for phase in predicted.phases:
            work.update({name: n * phase.waves for name, n in phase.instructions})
        counts.append(work)
        cycles.append(max(t.seconds - predicted.launch - predicted.start, 0.1 * t.seconds) * device.clock_ghz * 1e9)
    names = sorted({name for work in counts for name in work})
    prior = np.array([known.issue[name] for name in names])
    matrix = np.array([[work[name] for name in names] for work in counts]) / np.array(cycles)[:, None]
    matrix = np.vstack([matrix, PRIOR * np.diag(1 / prior)])
    fitted_cycles, _ = nnls(matrix, np.concatenate([np.ones(len(cycles)), np.full(len(names), PRIOR)]))
    return MappingProxyType(dict(known.issue) | dict(zip(names, fitted_cycles.tolist(), strict=True)))


def _with_overlap(timed: Sequence[_Timed], device: Device, known: Constants) -> Constants:
    """Return the constants with the share of the shorter of computing and waiting that explains the times best."""

    def error(overlap: float) -> float:
        tried = replace(known, overlap=overlap)
        return sum(abs(latency(t.kernel, device, known=tried).seconds / t.seconds - 1) for t in timed)

    return replace(known, overlap=min((k / 10 for k in range(11)), key=error))
