"""From compiled kernels to the rebuilt program: the graph is said again in JAX, and lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jax_stitch.backend.compile import HostKernel
from jax_stitch.backend.launch import Part, call, call_in_turn, host, runs
from jax_stitch.frontend.capture import Capture, lower
from jax_stitch.frontend.replay import Call, Joining, Launch, StitchedGraph, in_calls, leaves_pooled_work, replay
from jax_stitch.jit.programs.program import RebuiltProgram, types_of
from jax_stitch.jit.stitching.model import KernelProgram

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource
    from jax_stitch.graph.model import Graph


def finish(captured: Capture, program: KernelProgram) -> RebuiltProgram:
    """Return the rebuilt program of a captured function. Raises ``TypeError`` where it would return something else."""
    if not program.kernels:  # What XLA has optimized once need not fare as well the second time.
        every = tuple(range(len(captured.callbacks)))
        return RebuiltProgram(captured.name, captured.bytecode(), (), callbacks=every)

    run = replay(_in_calls(program, captured), captured.callbacks)

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


def _in_calls(program: KernelProgram, captured: Capture) -> StitchedGraph:
    """Return the program's graph with its kernels in calls: on a CPU, small ones share a call."""
    most = captured.device.target.shared_call_bytes
    pooled = leaves_pooled_work(program.graph)

    def source_of(at: Launch) -> KernelSource:
        return program.sources[program.source_of[at.kernel]]

    def part(at: Launch, level: int, places: tuple[int, ...]) -> Part:
        kernel = program.kernels[program.source_of[at.kernel]]
        assert isinstance(kernel, HostKernel)
        return Part(kernel, source_of(at), at.work, level, places)

    def is_small(at: Launch) -> bool:
        return most > 0 and runs(source_of(at)) and part(at, 0, ()).bytes < most

    def run(graph: Graph, made: Call, arrays: Sequence[Any]) -> Sequence[Any]:
        inputs, after = arrays[: len(made.inputs)], arrays[len(made.inputs) :]
        if len(made.launches) == 1:
            (at,) = made.launches
            kernel = program.kernels[program.source_of[at.kernel]]
            return call(kernel, source_of(at), *inputs, work=at.work, after=after, pooled=pooled)
        parts = list(map(part, made.launches, made.levels, made.places))
        outputs, between = ([graph[i].tensor for i in ids] for ids in (made.outputs, made.temporaries))
        return call_in_turn(parts, inputs, outputs, between, made.aliases, after=after, pooled=pooled)

    joining = Joining(
        is_small,
        aliases=lambda at: source_of(at).aliases,
        phases=lambda at: len(source_of(at).host_phases),
        parameters_are_apart=bool(captured.homes),
    )
    return in_calls(program.graph, joining, run)
