"""Results written in a later pass than the first that has them, where a later one computes them once more anyway."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

from jax_stitch.schedule.model import LoopPass, Part, RowPass, ScheduledKernel
from jax_stitch.util.values import replace


def written_later(kernel: ScheduledKernel, nodes: Collection[int]) -> ScheduledKernel:
    """Return the kernel with each of these results written by the last pass over as many places as that which writes
    it.

    That pass may have to read more for it: the kernel's reads tell.
    """
    return replace(kernel, parts=tuple(_later(part, nodes) for part in kernel.parts))


def _later(part: Part, nodes: Collection[int]) -> Part:
    passes: list[RowPass] = list(part.passes)
    for k, row_pass in enumerate(passes):
        if not isinstance(row_pass, LoopPass) or not _is_plain(row_pass):
            continue
        moving = tuple(i for i in row_pass.writes if i in nodes)
        last = max(n for n, s in enumerate(passes) if _is_plain(s) and s.size == row_pass.size)
        there = passes[last]
        if not moving or last == k or not isinstance(there, LoopPass):
            continue
        passes[k] = replace(row_pass, writes=tuple(i for i in row_pass.writes if i not in nodes))
        passes[last] = replace(there, writes=(*there.writes, *moving))
    return replace(part, passes=tuple(passes))


def _is_plain(row_pass: RowPass) -> TypeGuard[LoopPass]:
    return isinstance(row_pass, LoopPass) and not row_pass.scans and not row_pass.breaks
