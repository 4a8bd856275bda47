"""From a capture to its compiled kernels, by way of all stages."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from jax_stitch.backend.compile import effort, target_of
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.captured import Captured
from jax_stitch.jit import stages
from jax_stitch.util import memory
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify

if TYPE_CHECKING:
    from jax_stitch.jit.stitching.model import KernelProgram
    from jax_stitch.pipeline import Stitched


def make(
    captured: Captured,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
    verify: Verify = Verify.OFF,
    sparing: bool = False,
) -> KernelProgram:
    """Return a captured function as a program for ``device`` whose kernels, laid out for ``laid_out_for``, are
    compiled.

    Raises what any stage raises; where it is ``sparing``, ``NotWorthStitching``.
    """
    began = time.perf_counter()
    # A process that finds its programs on disk has no use for the planner, which takes a while to import.
    from jax_stitch.jit.stitching.model import KernelProgram
    from jax_stitch.jit.tune.in_time import compiled_in_time
    from jax_stitch.jit.tune.worth import check_worth, replaced_launches

    seconds: float | None = None
    if sparing:
        start = time.process_time()
        check_worth(captured, laid_out_for)
        spent = time.process_time() - start
        seconds = effort.planning.get() * max(spent, captured.xla_seconds or 0.0)
        memory.give_back()
    made = stitched(captured, device, laid_out_for, planner, templates, autotune, verify, seconds)
    stages.dump(captured, made)
    planned = time.perf_counter()
    made, kernels = compiled_in_time(made, target_of(device))
    numbers = {id(source): n for n, source in enumerate(made.sources)}
    source_of = tuple(numbers[id(kernel.source)] for kernel in made.kernels)
    launches = sum(kernel.launches for kernel in made.kernels)
    replaced = replaced_launches(made) if made.kernels else 0
    counts, seconds_taken = (launches, replaced), (planned - began, time.perf_counter() - planned)
    return KernelProgram(made.launched, made.sources, kernels, source_of, *counts, *seconds_taken, made.lasting)


def stitched(
    captured: Captured,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
    verify: Verify = Verify.OFF,
    seconds: float | None = None,
) -> Stitched:
    """Return the captured function's kernels, not yet compiled, less those that ``verify`` refuses. Where ``seconds``
    of processor time are given, the best plan by then is taken, less the kernels that save little.

    Raises ``Unstitchable`` and what other stages raise.
    """
    from jax_stitch.fusion.patience import Patience
    from jax_stitch.jit.tune import stitch_and_tune

    choices = planner, templates, autotune, Patience(math.inf if seconds is None else seconds)
    tuned = stitch_and_tune(captured, device, laid_out_for, *choices, sparing=seconds is not None)
    if verify is Verify.OFF:
        return tuned
    from jax_stitch.jit.verify.kernels import verified

    return verified(tuned, device, verify)
