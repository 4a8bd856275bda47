"""Occupancy against figures of NVIDIA's calculator, and its limits one by one."""

from __future__ import annotations

import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import occupancy


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks", "limit"),
    [
        ("h200", 256, 32, 0, 8, "threads"),
        ("h200", 256, 33, 0, 6, "registers"),  # 40 to a warp's lane, as they are given 256 at a time
        ("h200", 256, 64, 0, 4, "registers"),
        ("h200", 256, 255, 0, 1, "registers"),
        ("h200", 32, 16, 0, 32, "blocks"),
        ("h200", 1024, 32, 0, 2, "threads"),
        ("h200", 256, 32, 100 << 10, 2, "shared memory"),
        ("t4", 256, 32, 0, 4, "threads"),
        ("t4", 32, 16, 0, 16, "blocks"),
        ("l4", 32, 16, 0, 24, "blocks"),
        ("a100", 96, 72, 0, 9, "registers"),  # 28 warps by fours
    ],
)
def test_blocks(device: str, threads: int, registers: int, shared: int, blocks: int, limit: str) -> None:
    target = devices.get(device)
    found = occupancy(registers, shared, threads, target)
    assert (found.blocks, found.limit) == (blocks, limit)
    warps = -(-threads // 32)
    assert found.share == pytest.approx(blocks * warps * 32 / target.threads_per_multiprocessor)


@pytest.mark.parametrize("name", [n for n in devices.names() if devices.get(n).kind == "cuda"])
def test_shared_memory_around_each_boundary(name: str) -> None:
    """As many blocks as have all of what they ask for, the driver's kilobyte included; one byte more is one block less.

    57,345 to 58,112 bytes let four blocks meet on an H100 that holds three: they waited for each other for ever.
    """
    device = devices.get(name)
    assert device.compute_capability is not None
    own, unit = (1024, 128) if device.compute_capability >= (8, 0) else (0, 256)
    for blocks in range(1, 17):
        most = device.shared_per_multiprocessor // blocks // unit * unit - own
        if most > 0:
            assert device.blocks_with_shared(most) >= blocks
            assert device.blocks_with_shared(most + 1) < blocks
    if name == "h100":
        assert [device.blocks_with_shared(n) for n in (57344, 57345, 58112, 115712, 115713, 116224)] == [
            4,
            3,
            3,
            2,
            1,
            1,
        ]
