"""What a compiled kernel takes, measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from jax_stitch.backend.compile import Kernel, PtxKernel
from jax_stitch.backend.launch import call, direct
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource
from jax_stitch.util.timing import repeated

SAMPLE = 2e-3
"""Seconds of calls in a sample."""
LEAST_ROUNDS = 8


class KernelClock(Protocol):
    """Tells what a launch of a compiled kernel on these arrays takes."""

    def __call__(
        self,
        kernel: Kernel,
        source: KernelSource,
        arrays: Sequence[Any],
        device: Device,
        *,
        work: int | None,
        seconds: float,
    ) -> float: ...


def clock_of(device: Device) -> KernelClock:
    """Return the clock for kernels of a device in use: a GPU's own, where CuPy is there to read it."""
    return event_seconds if not device.target.is_host and direct.is_possible() else kernel_seconds


def event_seconds(
    kernel: Kernel, source: KernelSource, arrays: Sequence[Any], device: Device, *, work: int | None, seconds: float
) -> float:
    """Return the least that a launch takes by the clock of the attached GPU, from a cold cache: without XLA and without
    what the host takes. Raises ``CupyMissing``."""
    assert isinstance(kernel, PtxKernel), "a CPU has no such clock"
    with jax.enable_x64(True):  # else 64-bit arrays would be narrowed
        return direct.Direct.of(kernel, source).seconds([jax.numpy.asarray(a) for a in arrays], seconds)


def kernel_seconds(
    kernel: Kernel, source: KernelSource, arrays: Sequence[Any], device: Device, *, work: int | None, seconds: float
) -> float:
    """Return the least that a call takes, among samples for about ``seconds``: whatever else a machine does only adds
    to it.

    Calls follow each other inside one program, on the same buffers. On a single core the time is that of the process,
    which other processes' turns are not in. ``work`` is that of ``launch.call``.
    """

    def run(*values: Any) -> Any:
        return call(kernel, source, *values, work=work)

    clock = time.process_time if device.target.is_host and device.multiprocessors == 1 else time.perf_counter
    with jax.enable_x64(True):  # else 64-bit arrays would be narrowed
        placed = tuple(map(jax.numpy.asarray, arrays))
        trips, program = 1, repeated(run, placed, {}, 1)
        for _ in range(2):  # What the program itself takes would be much of a short sample.
            _sample(program, clock)
            once = _sample(program, clock) / trips
            if trips * once >= SAMPLE:
                break
            trips = math.ceil(SAMPLE / max(once, 1e-7))
            program = repeated(run, placed, {}, trips)
        _sample(program, clock)
        best, rounds, end = math.inf, 0, time.perf_counter() + seconds
        while rounds < LEAST_ROUNDS or time.perf_counter() < end:
            best = min(best, _sample(program, clock))
            rounds += 1
            if best > seconds:  # One call is longer than all of them should take.
                break
    return best / trips


def _sample(program: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    jax.block_until_ready(program())
    return clock() - start
