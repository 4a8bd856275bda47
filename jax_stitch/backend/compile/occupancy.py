"""How many blocks of a kernel a multiprocessor holds at a time, and what keeps it from holding more."""

from __future__ import annotations

from dataclasses import dataclass

from jax_stitch.devices.model import Device

_MOST_BLOCKS = {(7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}
"""Blocks of a multiprocessor by compute capability, where not 32 (CUDA programming guide, technical specifications)."""
_NEIGHBOURS = 16
"""Multiprocessors of a processing cluster (GPC), which the blocks of a thread-block cluster share: at the least (NVIDIA
H100 whitepaper: 132 in 8 of up to 18; how many each has differs from one GPU to the next)."""
_REGISTERS_TOGETHER = 256
"""Registers that a warp is given at a time."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``blocks`` on a multiprocessor at a time; ``share`` of its threads that they are, from 0 to 1; ``limit`` is what
    there is no more of: "threads", "blocks", "registers" or "shared memory".
    """

    blocks: int
    share: float
    limit: str


def occupancy(registers: int, shared_bytes: int, threads: int, device: Device) -> Occupancy:
    """Return the occupancy of a launch with blocks of ``threads`` threads on ``device``, with so many registers each
    and ``shared_bytes`` of static and dynamic shared memory a block, as NVIDIA's occupancy calculator has it.
    """
    assert device.compute_capability is not None
    warps = -(-threads // device.warp_size)
    per_warp = _up(max(registers, 1) * device.warp_size, _REGISTERS_TOGETHER)
    # Four schedulers share the registers evenly.
    by_registers = device.registers_per_multiprocessor // per_warp // 4 * 4 // warps
    limits = {
        "threads": device.threads_per_multiprocessor // (warps * device.warp_size),
        "blocks": _MOST_BLOCKS.get(device.compute_capability, 32),
        "registers": by_registers,
        "shared memory": device.blocks_with_shared(shared_bytes),
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps * device.warp_size / device.threads_per_multiprocessor, limit)


def resident_blocks(held: Occupancy, device: Device, cluster: int = 1) -> int:
    """Return the blocks that are on the device at a time, in clusters of ``cluster`` blocks each."""
    if cluster == 1:
        return held.blocks * device.multiprocessors
    neighbours = min(_NEIGHBOURS, device.multiprocessors)
    return device.multiprocessors // neighbours * (neighbours * held.blocks // cluster) * cluster


def _up(n: int, to: int) -> int:
    return -(-n // to) * to
