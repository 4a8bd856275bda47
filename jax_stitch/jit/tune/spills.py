"""From the compiler back to the scheduler: a kernel whose threads' registers do not fit is laid out again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from jax_stitch.backend.compile import PtxKernel, compile_kernel
from jax_stitch.devices import Device
from jax_stitch.emit import KernelRefused, KernelSource, emit
from jax_stitch.jit.tune.in_time import compiled_in_time
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.schedule.fetched import fetched

_logger = logging.getLogger(__name__)

_REGISTERS = (64, 128, 255)
"""Of a thread: what it is to have where it spills with fewer. An instruction can name 255."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A schedule that leaves a thread ``registers`` (None: the first one), and what the compiler makes of it."""

    registers: int | None
    source: KernelSource
    compiled: PtxKernel


def fit(stitched: Stitched, target: str) -> Stitched:
    """Return the same kernels for ``target``, as in ``Stitched.compile``; those that spill registers there are laid out
    with fewer threads to a multiprocessor, so that each has more.

    Where no schedule does without, the one that spills least. Those that take the compiler too long are left to XLA.
    Kernels for the host stay as they are.
    """
    if target == "host":
        return stitched
    stitched, compiled = compiled_in_time(stitched, target)
    first = zip(stitched.sources, compiled, strict=True)
    spilling = {id(s): _Attempt(None, s, k) for s, k in first if isinstance(k, PtxKernel) and k.spill_bytes}
    if not spilling:
        return stitched
    fitted: dict[int, _Attempt] = {}
    kernels: list[StitchedKernel] = []
    for kernel in stitched.kernels:
        key = id(kernel.source)
        if key in spilling and key not in fitted:
            fitted[key] = _roomier(kernel, stitched.device, spilling[key])
        attempt = fitted.get(key)
        if attempt is not None and attempt.registers is not None:
            scheduled = _laid_out(kernel.scheduled, stitched.device, attempt.registers)
            kernel = replace(kernel, scheduled=scheduled, source=attempt.source)
        kernels.append(kernel)
    return replace(stitched, kernels=tuple(kernels))


def _roomier(kernel: StitchedKernel, device: Device, first: _Attempt) -> _Attempt:
    """Return the first layout without spills, or the one with the fewest."""
    best = first
    for registers in _REGISTERS:
        if registers <= first.compiled.registers:
            continue
        try:
            source = emit(_laid_out(kernel.scheduled, device, registers), kernel.reuses)
        except KernelRefused as refusal:
            _logger.warning("%s", refusal)
            continue
        compiled = compile_kernel(source, first.compiled.sm)
        assert isinstance(compiled, PtxKernel)
        if compiled.spill_bytes < best.compiled.spill_bytes:
            best = _Attempt(registers, source, compiled)
        if not best.compiled.spill_bytes:
            break
    _logger.debug(
        "%s: spilled %d bytes with %d registers on %s; %d bytes with %d",
        *(first.source.name, first.compiled.spill_bytes, first.compiled.registers, first.compiled.sm),
        *(best.compiled.spill_bytes, best.compiled.registers),
    )
    return best


def _laid_out(kernel: ScheduledKernel, device: Device, registers: int) -> ScheduledKernel:
    patterns = [p.pattern for p in kernel.parts]
    fetch = any(map(fetched, kernel.parts))
    return schedule(kernel.graph, patterns, device, kernel.name, registers, kernel.asked, kernel.cluster, fetch)
