"""What the checking mode tells of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np


class Kind(Enum):
    """Kinds of faults of a kernel; the values are the numbers of ``backend/runtime/checked/report.h``."""

    OUT_OF_BOUNDS = 0
    MISALIGNED = 1
    UNWRITTEN = 2
    WRITTEN_INPUT = 3
    RACE = 4
    DIVERGENT_BARRIER = 5
    DIVERGENT_SHUFFLE = 6
    BANK_CONFLICT = 7
    NO_END = 8
    MISSING_OUTPUT = 9
    ABSENT_BLOCK = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, at the first thread that showed it; ``count`` is how often the same line showed it."""

    kind: Kind
    kernel: str
    message: str
    """What happened, as a sentence."""
    block: int
    thread: int
    buffer: str | None
    """A parameter of the kernel, "shared memory", or None."""
    index: int | None
    """Of the element in the buffer; bytes from its start for shared memory."""
    line: int | None
    """In the kernel's text, from 1; None where there is none or the machine has no tool to tell."""
    text: str
    """That line."""
    count: int

    def __str__(self) -> str:
        place = f"line {self.line}: {self.text}" if self.line is not None else "line unknown"
        times = f" ({self.count:,} times)" if self.count > 1 and self.kind is not Kind.BANK_CONFLICT else ""
        who = f"block {self.block}, thread {self.thread}: " if self.thread >= 0 else ""
        where = f"\n    {place}" if self.thread >= 0 else ""
        return f"{self.kernel}: {who}{self.message}{times}{where}"


@dataclass(frozen=True, slots=True)
class BufferTraffic:
    """What a kernel moves to and from one buffer, in sectors of 32 bytes.

    ``by_warps`` counts the sectors of each access of a warp, which is what goes between registers and the first cache;
    ``by_blocks`` each sector once for every block that touches it; the plain counts each sector once in every phase of
    the grid: what device memory moves where caches keep what is touched again.
    """

    name: str
    read_by_warps: int
    written_by_warps: int
    read_by_blocks: int
    written_by_blocks: int
    read: int
    written: int
    bytes_read: int
    bytes_written: int
    accesses: int
    again: tuple[int, ...]
    """Sectors that a block reads again, by the binary logarithm of how many others it has brought in meanwhile."""

    def read_again(self, sectors: int) -> int:
        """Return the sectors that a block reads again after it has brought in more than ``sectors`` others."""
        return sum(count for k, count in enumerate(self.again) if 1 << k >= sectors)


SECTOR = 32
"""Bytes that memory moves at a time."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a checked launch showed; false where nothing is wrong."""

    kernel: str
    faults: tuple[Finding, ...]
    traffic: tuple[BufferTraffic, ...]
    wavefronts: int
    """Of all accesses to shared memory; ``extra_wavefronts`` are those due to bank conflicts."""
    extra_wavefronts: int
    blocks: int
    """Of the launch that were run."""
    stopped: bool
    """Whether the launch could not go on after a fault."""

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def bytes_by_warps(self) -> int:
        """Return the bytes of all sectors of all accesses of warps."""
        return SECTOR * sum(t.read_by_warps + t.written_by_warps for t in self.traffic)

    @property
    def bytes_by_blocks(self) -> int:
        """Return the bytes of the sectors each block touches."""
        return SECTOR * sum(t.read_by_blocks + t.written_by_blocks for t in self.traffic)

    @property
    def bytes_moved(self) -> int:
        """Return the bytes of the sectors that are touched, once in each phase."""
        return SECTOR * sum(t.read + t.written for t in self.traffic)

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {len(self.faults) or 'no'} finding{'s' * (len(self.faults) != 1)}"]
        lines += ["  " + str(f).replace("\n", "\n  ") for f in self.faults]
        lines.append(
            f"  {self.blocks:,} blocks; sectors of 32 bytes: {self.bytes_by_warps // SECTOR:,} by warps, "
            f"{self.bytes_by_blocks // SECTOR:,} by blocks, {self.bytes_moved // SECTOR:,} in all; "
            f"shared memory: {self.wavefronts:,} wavefronts, {self.extra_wavefronts:,} of them for bank conflicts"
        )
        if self.stopped:
            lines.append("  stopped there")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of a launch, and what it computed."""

    findings: Findings
    outputs: tuple[np.ndarray, ...] = field(repr=False)
