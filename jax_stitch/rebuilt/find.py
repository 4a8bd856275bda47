"""From a capture to its rebuilt program: from the cache, or by way of all stages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jax_stitch import store
from jax_stitch.autotune_choice import Autotune
from jax_stitch.capture import Capture, lower
from jax_stitch.capture.errors import Unstitchable
from jax_stitch.compile import HostKernel, load_host, target_of
from jax_stitch.devices import Device
from jax_stitch.launch import host
from jax_stitch.planner_names import PlannerName
from jax_stitch.rebuilt.identity import entry_name
from jax_stitch.rebuilt.program import RebuiltProgram

if TYPE_CHECKING:
    from jax_stitch.pipeline import Stitched

_KIND = "programs"


def rebuild(
    captured: Capture,
    device: Device,
    planner: PlannerName,
    scheduled_for: Device | None = None,
    templates: str = "",
    autotune: Autotune = Autotune.OFF,
) -> Callable[[Sequence[Any]], list[Any]]:
    """A captured function of its entry's parameters, ready to run on ``device``: its kernels are loaded.

    They are laid out for ``scheduled_for``, by default the same device, by ``templates`` where there are any, and
    chosen by what ``autotune`` measures. Raises ``Unstitchable``, and what any stage raises.
    """
    if captured.unsupported is not None:
        raise Unstitchable(captured.unsupported)
    laid_out_for = scheduled_for or device
    if captured.partitioning is not None:  # Its collectives mean nothing outside the shard_map that it is part of.
        return _stitched(captured, device, laid_out_for, planner, templates, autotune).compile(target_of(device))
    name = entry_name(captured, device, laid_out_for, planner, templates, autotune)
    program = _load(name)
    if program is None:
        program = _make(captured, device, laid_out_for, planner, templates, autotune)
        _keep(name, program)
    return functools.partial(program, results=captured.results, callbacks=captured.callbacks, effects=captured.effects)


def _load(name: str) -> RebuiltProgram | None:
    """The program of that name on disk, if all its kernels are there too."""
    data = store.read(_KIND, name)
    if data is None:
        return None
    program = RebuiltProgram.from_bytes(data)
    for kernel, id in program.kernels:
        loaded = load_host(kernel, id)
        if loaded is None:
            return None
        host.register(loaded)
    return program


def _keep(name: str, program: RebuiltProgram) -> None:
    if not program.constants:
        store.write(_KIND, name, program.to_bytes())


def _make(
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
) -> RebuiltProgram:
    stitched = _stitched(captured, device, laid_out_for, planner, templates, autotune)
    if not stitched.kernels:  # What XLA has optimized once need not fare as well the second time.
        every = tuple(range(len(captured.callbacks)))
        return RebuiltProgram(captured.name, captured.bytecode(), (), every)
    kernels = stitched.compile_kernels(target_of(device))
    run = stitched.function(kernels)

    def rebuilt(*parameters: Any) -> list[Any]:
        return run(parameters)

    rebuilt.__name__ = rebuilt.__qualname__ = captured.name
    lowered = lower(rebuilt, captured.parameters, device)
    if lowered.results != captured.results:
        raise TypeError(f"the rebuilt program returns {lowered.results}, not {captured.results}")
    loaded = tuple((k.name, k.id) for k in kernels if isinstance(k, HostKernel))
    numbers = {id(function): number for number, function in enumerate(captured.callbacks)}
    callbacks = tuple(numbers[id(function)] for function in lowered.callbacks)
    return RebuiltProgram(captured.name, lowered.bytecode(), loaded, callbacks, lowered.constants)


def _stitched(
    captured: Capture,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
) -> Stitched:
    # A process that finds its programs on disk has no use for the planner, which takes a while to import.
    from jax_stitch.tune import stitch_and_tune

    return stitch_and_tune(captured, device, laid_out_for, planner, templates, autotune)
