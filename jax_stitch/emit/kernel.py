"""Emission of a kernel: ScheduledKernel -> the kernel language -> KernelSource."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from jax_stitch.analysis.results import Results
from jax_stitch.emit.axes import axis_findings
from jax_stitch.emit.beside import read_beside
from jax_stitch.emit.cpp import kernel as cpp_kernel
from jax_stitch.emit.cpp.names import Names
from jax_stitch.emit.in_place import Reuse, in_place, reads
from jax_stitch.emit.loop import LoopEmitter
from jax_stitch.emit.part import PartEmitter
from jax_stitch.emit.refused import KernelRefused
from jax_stitch.emit.source import KernelSource
from jax_stitch.emit.team import TeamEmitter
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.ir.passes import Pass, Pipeline
from jax_stitch.kernel import model
from jax_stitch.kernel.choices_outside import choices_outside
from jax_stitch.kernel.fragment_products import fragment_products
from jax_stitch.kernel.functions_apart import functions_apart
from jax_stitch.kernel.index_sets import split_index_sets
from jax_stitch.kernel.invariants import invariants_outside
from jax_stitch.kernel.lane_strides import hide_strides
from jax_stitch.kernel.outlined import outlined
from jax_stitch.kernel.product_blocks import product_blocks
from jax_stitch.kernel.reads_outside import reads_outside
from jax_stitch.kernel.row_ranges import split_rows
from jax_stitch.kernel.skewed_rows import skewed_rows
from jax_stitch.kernel.square_loads import square_loads
from jax_stitch.kernel.verify import verify
from jax_stitch.schedule.later import written_later
from jax_stitch.schedule.model import Part, ScheduledKernel


def emit(kernel: ScheduledKernel, wanted: Sequence[Reuse] = (), plain: KernelSource | None = None) -> KernelSource:
    """Return a scheduled kernel's C++ text, its buffers, and how to launch it; raise ``KernelRefused`` where the
    verifier refuses it. Of the outputs ``wanted`` over inputs, those that can are written in place. Where none can,
    return ``plain``, the source with none wanted, if it is given.
    """
    kernel, made, aliases = _written_over(kernel, wanted)
    if plain is not None and not aliases:
        return plain
    if findings := [*verify(made), *axis_findings(kernel, made)]:
        raise KernelRefused(_source(kernel, made, aliases), findings)
    return _source(kernel, for_target(kernel, made), aliases)


def _written_over(
    kernel: ScheduledKernel, wanted: Sequence[Reuse]
) -> tuple[ScheduledKernel, model.Kernel, tuple[tuple[int, int], ...]]:
    """Return a kernel with outputs written over inputs, and these aliases. An output is written later than usual where
    it can be in place only then, and where that costs no reads.
    """
    made = kernel_of(kernel)
    best, aliases = in_place(made, wanted)
    left = {w.output for w in wanted} - {o for _, o in aliases}
    later = written_later(kernel, {kernel.outputs[o] for o in left}) if left else kernel
    if all(a.passes == b.passes for a, b in zip(later.parts, kernel.parts, strict=True)):
        return kernel, best, aliases
    other = kernel_of(later)
    if reads(other) <= reads(made):
        made_later, more = in_place(other, wanted)
        if len(more) > len(aliases):
            return later, made_later, more
    return kernel, best, aliases


def _source(kernel: ScheduledKernel, made: model.Kernel, aliases: tuple[tuple[int, int], ...]) -> KernelSource:
    graph = kernel.graph
    return KernelSource(
        kernel.name,
        cpp_kernel.text(made),
        tuple(graph[i].tensor for i in kernel.inputs),
        tuple(graph[i].tensor for i in kernel.outputs),
        kernel.blocks,
        kernel.threads,
        kernel.shared_bytes,
        tuple(_scratch(kernel.parts)),
        tuple(sum(p.split.blocks for p in phase) for phase in kernel.phases) if kernel.residency else (),
        kernel.cluster,
        max(0 if p.team is None else p.team.loop.pieces - 1 for p in kernel.parts),
        aliases,
    )


def kernel_of(kernel: ScheduledKernel) -> model.Kernel:
    """Return a scheduled kernel in the kernel language. It is cached while its graph is planned, since emission, cost
    estimates and in-place writes all ask for it.
    """
    return _kernels.get(kernel.graph, kernel, lambda: _kernel_of(kernel))


_kernels: Results[ScheduledKernel, model.Kernel] = Results()


def for_target(kernel: ScheduledKernel, made: model.Kernel) -> model.Kernel:
    """Return the kernel ``made`` of a scheduled kernel, after the passes for its target: as it is printed."""
    return KERNEL.run(made, kernel)


def _rows_are_loops(kernel: ScheduledKernel) -> bool:
    return kernel.rows_are_loops


def verify_kernel(made: model.Kernel) -> None:
    """Raise where a pass has made a kernel that does what it must not."""
    if findings := verify(made):
        raise ValueError("; ".join(map(str, findings)))


KERNEL: Pipeline[model.Kernel, ScheduledKernel] = Pipeline(
    "kernel",
    Pass("split-index-sets", lambda made, _: split_index_sets(made), _rows_are_loops),
    Pass("unswitch-rows", lambda made, _: choices_outside(made), _rows_are_loops),
    Pass("split-rows", lambda made, _: split_rows(made), _rows_are_loops),
    Pass("hoist-reads", lambda made, _: reads_outside(made), _rows_are_loops),
    Pass("outline-sweeps", lambda made, _: outlined(made)),
    Pass("multiply-fragments", lambda made, _: fragment_products(made)),
    Pass("skew-rows", lambda made, _: skewed_rows(made)),
    Pass("block-products", lambda made, _: product_blocks(made)),
    Pass("turn-loads", lambda made, _: square_loads(made)),
    Pass("hoist-invariants", lambda made, _: invariants_outside(made), _rows_are_loops),
    Pass("distribute-functions", lambda made, _: functions_apart(made), _rows_are_loops),
    Pass("hide-strides", lambda made, _: hide_strides(made), _rows_are_loops),
    verify=verify_kernel,
)
"""The passes over a kernel after its verification. Each keeps all results, and the order of effects within a row."""


def _kernel_of(kernel: ScheduledKernel) -> model.Kernel:
    graph = kernel.graph
    inputs = {i: _buffer(f"in{k}", graph[i].tensor) for k, i in enumerate(kernel.inputs)}
    outputs = {i: _buffer(f"out{k}", graph[i].tensor) for k, i in enumerate(kernel.outputs)}
    # A later phase reads an output under the output's name.
    read = {i: b.name for i, b in (inputs | outputs).items()}
    parts: list[model.Part] = []
    phases: list[model.Phase] = []
    first = used = 0
    for phase in kernel.phases:
        calls: list[model.Call] = []
        for part in phase:
            own = part.team.scratch if part.team is not None else ()
            arguments = [read[i] for i in part.pattern.inputs] + [outputs[i].name for i in part.pattern.outputs]
            arguments += [f"scratch{used + n}" for n in range(len(own))]
            calls.append(model.Call(len(parts), first, first + part.split.blocks, tuple(arguments)))
            first, used = first + part.split.blocks, used + len(own)
            parts.append(read_beside(_emitter(graph, part, kernel.crossing).emit(f"part_{len(parts)}")))
        phases.append(model.Phase(tuple(calls)))
    scratch = tuple(_buffer(f"scratch{k}", t) for k, t in enumerate(_scratch(kernel.parts)))
    buffers = tuple(inputs.values()), tuple(outputs.values()), scratch
    return model.Kernel(kernel.name, *buffers, tuple(parts), tuple(phases), _launch(kernel))


def _buffer(name: str, tensor: TensorType) -> model.Buffer:
    return model.Buffer(name, tensor.dtype, tensor.dims)


def _scratch(parts: Sequence[Part]) -> list[TensorType]:
    """Return the types of the scratch buffers that the parts need."""
    return [tensor for part in parts if part.team is not None for tensor in part.team.scratch]


def _launch(kernel: ScheduledKernel) -> model.Launch:
    residency = kernel.residency
    return model.Launch(
        kernel.blocks,
        kernel.threads,
        kernel.shared_bytes,
        kernel.cluster,
        residency.per_multiprocessor if residency else kernel.together,
        residency is not None,
        residency.last_block_from if residency else len(kernel.phases),
    )


def _emitter(graph: Graph, part: Part, crossing: Collection[int]) -> PartEmitter | LoopEmitter | TeamEmitter:
    if part.team is not None:
        return TeamEmitter(graph, part, crossing)
    if part.pattern.loop is not None:
        return LoopEmitter(graph, part, crossing)
    return PartEmitter(graph, part, Names(graph), crossing)


def structure(source: KernelSource) -> tuple[object, ...]:
    """Return a key that is equal for kernels that differ only in HLO's names of values: one can replace the other."""
    text = cpp_kernel.canonical(re.sub(rf"\b{source.name}\b", "KERNEL", source.text))
    return text, *source.kind
