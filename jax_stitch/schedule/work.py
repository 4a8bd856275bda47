"""How much work a kernel is: what the launcher of a CPU goes by when it takes one thread or several."""

from __future__ import annotations

from jax_stitch.ir.nest import Nest
from jax_stitch.ir.team import TeamLoop
from jax_stitch.loops.team import elements_of
from jax_stitch.schedule.model import ScheduledKernel


def work_of(kernel: ScheduledKernel) -> int | None:
    """About how many bytes' worth of work a loop is; other kernels are as much as their buffers. A byte takes as long
    as an operation on one of a vector's lanes, a division or a function as twenty.
    """
    work = 0
    for p in (part.pattern for part in kernel.parts):
        match p.loop:
            case Nest(steps=steps, varying=varying, uniform=uniform):
                light, heavy = (sum(one) for one in zip(varying, uniform, strict=True))
                work += int(steps * p.rows * (light + 20 * heavy))
            case TeamLoop(likely_trips=trips, rows=rows):
                work += trips * rows * elements_of(p.loop)
    return work or None
