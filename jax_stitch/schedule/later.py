"""Results stored in a later pass than the first that has them, where a later one computes them once more anyway."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeGuard

from jax_stitch.schedule.model import LoopStage, Part, ScheduledKernel, Stage


def stored_later(kernel: ScheduledKernel, nodes: Collection[int]) -> ScheduledKernel:
    """The kernel with each of these results stored by the last pass over as many places as that which stores it.

    That pass may have to read more for it: the kernel's reads tell.
    """
    return replace(kernel, parts=tuple(_later(part, nodes) for part in kernel.parts))


def _later(part: Part, nodes: Collection[int]) -> Part:
    stages: list[Stage] = list(part.stages)
    for k, stage in enumerate(stages):
        if not isinstance(stage, LoopStage) or not _is_plain(stage):
            continue
        moving = tuple(i for i in stage.stores if i in nodes)
        last = max(n for n, s in enumerate(stages) if _is_plain(s) and s.size == stage.size)
        there = stages[last]
        if not moving or last == k or not isinstance(there, LoopStage):
            continue
        stages[k] = replace(stage, stores=tuple(i for i in stage.stores if i not in nodes))
        stages[last] = replace(there, stores=(*there.stores, *moving))
    return replace(part, stages=tuple(stages))


def _is_plain(stage: Stage) -> TypeGuard[LoopStage]:
    return isinstance(stage, LoopStage) and not stage.scans and not stage.cuts
