"""From compiled kernels to the rebuilt program: the graph is said again in JAX, and lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jax_stitch.capture import Capture, lower
from jax_stitch.compile import HostKernel
from jax_stitch.launch import call, host
from jax_stitch.programs.program import RebuiltProgram, types_of
from jax_stitch.replay import Launch, leaves_pooled_work, replay
from jax_stitch.stitching.model import KernelProgram


def finish(captured: Capture, program: KernelProgram) -> RebuiltProgram:
    """Return the rebuilt program of a captured function. Raises ``TypeError`` where it would return something else."""
    if not program.kernels:  # What XLA has optimized once need not fare as well the second time.
        every = tuple(range(len(captured.callbacks)))
        return RebuiltProgram(captured.name, captured.bytecode(), (), callbacks=every)

    pooled = leaves_pooled_work(program.graph)

    def launch(at: Launch, arrays: Sequence[Any]) -> Sequence[Any]:
        number = program.source_of[at.kernel]
        inputs, after = arrays[: len(at.inputs)], arrays[len(at.inputs) :]
        return call(program.kernels[number], program.sources[number], *inputs, work=at.work, after=after, pooled=pooled)

    run = replay(program.graph.run_by(launch), captured.callbacks)

    def rebuilt(*parameters: Any) -> list[Any]:
        return run(parameters)

    rebuilt.__name__ = rebuilt.__qualname__ = captured.name
    with host.held_by_program():
        lowered = lower(rebuilt, captured.parameters, captured.device)
    if lowered.results != captured.results:
        raise TypeError(f"the rebuilt program returns {lowered.results}, not {captured.results}")
    held = tuple(k for k in program.kernels if isinstance(k, HostKernel))
    loaded = tuple((k.name, k.id) for k in held)
    numbers = {id(function): number for number, function in enumerate(captured.callbacks)}
    callbacks = tuple(numbers[id(function)] for function in lowered.callbacks)
    counts = program.launches, program.replaced
    types = types_of(captured.parameters, captured.results)
    code = lowered.bytecode()
    made = RebuiltProgram(captured.name, code, loaded, *counts, callbacks, held, lowered.constants, types)
    return replace(made, place=captured.place)
