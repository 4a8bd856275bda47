"""Do the blocks of a kernel that wait for each other fit on the device together, now that it is compiled?

One that has no place until others end, which wait for it, would hang the GPU.
"""

from __future__ import annotations

import logging

from jax_stitch.backend.compile import Kernel, PtxKernel, occupancy, resident_blocks
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource
from jax_stitch.jit.tune.without import without
from jax_stitch.pipeline import Stitched, StitchedKernel
from jax_stitch.util.values import replace

_logger = logging.getLogger(__name__)


def all_resident(stitched: Stitched, kernels: tuple[Kernel, ...]) -> tuple[Stitched, tuple[Kernel, ...]]:
    """Return ``stitched`` and its compiled ``kernels``, less those whose blocks do not fit the device together by what
    the compiler says of registers and shared memory; a note on the plan names them.
    """
    compiled = dict(zip(map(id, stitched.sources), kernels, strict=True))
    reasons: dict[int, str] = {}
    for kernel in stitched.kernels:
        made = compiled[id(kernel.source)]
        if not isinstance(made, PtxKernel):
            continue
        if _waits(kernel) and not stitched.device.blocks_may_wait:
            reasons[kernel.number] = "its blocks wait for each other, which may be for ever beside collectives"
        elif (most := _most(kernel, made, stitched.device)) < kernel.source.grid:
            reasons[kernel.number] = f"its {kernel.source.grid} blocks wait for each other, and {most} run together"
    if not reasons:
        return stitched, kernels
    left = without(stitched, reasons)
    notes = [f"{k.source.name} is left to XLA: {reasons[k.number]}" for k in stitched.kernels if k.number in reasons]
    left = replace(left, plan=replace(left.plan, notes=(*left.plan.notes, *notes)))
    return left, tuple(compiled[id(source)] for source in left.sources)


def _most(kernel: StitchedKernel, made: PtxKernel, device: Device) -> int:
    """Return the blocks of a kernel that may wait for each other: all that run together, or any number where none
    waits.
    """
    source = kernel.source
    if not _waits(kernel):
        return source.grid
    held = occupancy(made.registers, source.shared_bytes + made.shared_bytes, source.block, device)
    if (blocks := _by_driver(made, source, device)) is not None:
        held = replace(held, blocks=min(held.blocks, blocks))
    return resident_blocks(held, device, source.cluster)


def _by_driver(made: PtxKernel, source: KernelSource, device: Device) -> int | None:
    """Return the blocks that the driver of an attached GPU puts on a multiprocessor: it knows what it takes of it
    itself. None where it cannot be asked; the count by the published rules then stands alone."""
    if not device.attached:
        return None
    from jax_stitch.backend.launch import direct

    if not direct.is_possible():
        return None
    try:
        return direct.Direct.of(made, source).function.blocks_per_multiprocessor()
    except Exception as trouble:  # CuPy's, which nothing else needs.
        _logger.debug("%s: the driver does not say how many of its blocks fit: %s", source.name, trouble)
        return None


def _waits(kernel: StitchedKernel) -> bool:
    """Return whether blocks of the kernel stand at a barrier until all have come."""
    residency = kernel.scheduled.residency
    return residency is not None and (residency.last_block_from > 1 or any(p.spread for p in kernel.scheduled.parts))
