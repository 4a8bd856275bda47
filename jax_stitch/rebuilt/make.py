"""From a capture to its rebuilt program, by way of all stages."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from jax_stitch import stages
from jax_stitch.capture import Capture, lower
from jax_stitch.compile import HostKernel, effort, target_of
from jax_stitch.devices import Device
from jax_stitch.launch import host
from jax_stitch.options.autotune import Autotune
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.options.verification import Verify
from jax_stitch.programs.program import RebuiltProgram, types_of
from jax_stitch.util import memory

if TYPE_CHECKING:
    from jax_stitch.pipeline import Stitched


def make(
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
    verify: Verify = Verify.OFF,
    sparing: bool = False,
) -> RebuiltProgram:
    """A captured function as a program for ``device`` whose kernels, laid out for ``laid_out_for``, are compiled.

    Raises what any stage raises; where it is ``sparing``, ``NotWorthStitching``.
    """
    from jax_stitch.tune.in_time import compiled_in_time
    from jax_stitch.tune.worth import check_worth, replaced_launches, worthwhile

    seconds = math.inf
    if sparing:
        start = time.process_time()
        check_worth(captured, laid_out_for)
        spent, known = time.process_time() - start, captured.compiled
        seconds = effort.planning.get() * (spent if known is None else max(spent, known.cost))
        memory.give_back()
    made = stitched(captured, device, laid_out_for, planner, templates, autotune, verify, seconds)
    if sparing:
        made = worthwhile(made)
    stages.dump(captured, made)
    made, kernels = compiled_in_time(made, target_of(device))
    if not made.kernels:  # What XLA has optimized once need not fare as well the second time.
        every = tuple(range(len(captured.callbacks)))
        return RebuiltProgram(captured.name, captured.bytecode(), (), callbacks=every)
    run = made.function(kernels)

    def rebuilt(*parameters: Any) -> list[Any]:
        return run(parameters)

    rebuilt.__name__ = rebuilt.__qualname__ = captured.name
    with host.held_by_program():
        lowered = lower(rebuilt, captured.parameters, captured.device)
    if lowered.results != captured.results:
        raise TypeError(f"the rebuilt program returns {lowered.results}, not {captured.results}")
    held = tuple(k for k in kernels if isinstance(k, HostKernel))
    loaded = tuple((k.name, k.id) for k in held)
    numbers = {id(function): number for number, function in enumerate(captured.callbacks)}
    callbacks = tuple(numbers[id(function)] for function in lowered.callbacks)
    launches = sum(kernel.launches for kernel in made.kernels), replaced_launches(made) if sparing else 0
    types = types_of(captured.parameters, captured.results)
    return RebuiltProgram(
        captured.name, lowered.bytecode(), loaded, *launches, callbacks, held, lowered.constants, types
    )


def stitched(
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
    verify: Verify = Verify.OFF,
    seconds: float = math.inf,
) -> Stitched:
    """The captured function's kernels, not yet compiled, less those that ``verify`` refuses. After so many ``seconds``
    of processor time the best plan by then is taken.

    Raises ``Unstitchable`` and what other stages raise.
    """
    # A process that finds its programs on disk has no use for the planner, which takes a while to import.
    from jax_stitch.fusion.patience import Patience
    from jax_stitch.tune import stitch_and_tune

    patience = Patience.of(seconds)
    tuned = stitch_and_tune(captured, device, laid_out_for, planner, templates, autotune, patience)
    if verify is Verify.OFF:
        return tuned
    from jax_stitch.verify.kernels import verified

    return verified(tuned, device, verify)
