"""ScheduledKernel -> KernelSource: the parts' functions and the entry points for CUDA and the host."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import groupby

from jax_stitch.emit import scalar
from jax_stitch.emit.dispatch import Call, chain
from jax_stitch.emit.lines import indent
from jax_stitch.emit.loop import LoopEmitter
from jax_stitch.emit.names import Names
from jax_stitch.emit.part import PartEmitter
from jax_stitch.emit.source import KernelSource, without_comments
from jax_stitch.emit.team import TeamEmitter
from jax_stitch.graph.model import Graph, TensorType
from jax_stitch.schedule.model import Part, ScheduledKernel


def emit(kernel: ScheduledKernel) -> KernelSource:
    """The C++ text of a scheduled kernel, which NVRTC and a host compiler both take."""
    graph, inputs, outputs = kernel.graph, kernel.inputs, kernel.outputs
    functions, calls, scratch = _parts(kernel)
    text = "\n".join(
        [
            '#include "stitch.h"',
            "",
            *functions,
            "#ifdef __CUDACC__",
            *_device_entry(kernel, calls, scratch),
            "#else",
            *_host_entry(kernel, calls, scratch),
            "#endif",
            "",
        ]
    )
    return KernelSource(
        kernel.name,
        text,
        tuple(graph[i].tensor for i in inputs),
        tuple(graph[i].tensor for i in outputs),
        kernel.blocks,
        kernel.threads,
        kernel.shared_bytes,
        scratch,
        tuple(sum(p.split.blocks for p in phase) for phase in kernel.phases) if kernel.residency else (),
        kernel.cluster,
    )


def _buffers(kernel: ScheduledKernel) -> dict[int, str]:
    """The names of the entry points' parameters: what is written is read under the name that it is written by."""
    written = {i: f"out{k}" for k, i in enumerate(kernel.outputs)}
    return {**written, **{i: f"in{k}" for k, i in enumerate(kernel.inputs)}}


def _parts(kernel: ScheduledKernel) -> tuple[list[str], list[Call], tuple[TensorType, ...]]:
    """The functions of the parts, those that are alike once; their calls; and the scratch memory that they need."""
    graph, read = kernel.graph, _buffers(kernel)
    written = {i: f"out{k}" for k, i in enumerate(kernel.outputs)}
    bodies: dict[str, str] = {}
    functions: list[str] = []
    calls: list[Call] = []
    scratch: list[TensorType] = []
    first = 0
    for k, part in enumerate(kernel.parts):
        emitter = _emitter(graph, part, kernel.crossing)
        head, function = emitter.emit()
        name = _shared_body(bodies, functions, head, function, k)
        last = first + part.split.blocks
        own_scratch = part.team.scratch if part.team is not None else ()
        arguments = [(f"const {_pointer(graph[i].tensor)}", read[i]) for i in emitter.inputs]
        arguments += [(_pointer(graph[i].tensor), written[i]) for i in emitter.outputs]
        arguments += [(_pointer(tensor), f"scratch{len(scratch) + n}") for n, tensor in enumerate(own_scratch)]
        scratch += own_scratch
        calls.append(Call(name, first, last, tuple(arguments), ("shared", "ST_SLOT") if part.spread else ("shared",)))
        first = last
    return functions, calls, tuple(scratch)


def _device_entry(kernel: ScheduledKernel, calls: Sequence[Call], scratch: Sequence[TensorType]) -> list[str]:
    """The kernel for CUDA."""
    graph, read = kernel.graph, _buffers(kernel)
    parameters = ["const int* ST_RESTRICT slot"] if kernel.residency else []
    parameters += [f"const {_pointer(graph[i].tensor)} ST_RESTRICT {read[i]}" for i in kernel.inputs]
    parameters += [f"{_pointer(graph[i].tensor)} ST_RESTRICT out{k}" for k, i in enumerate(kernel.outputs)]
    parameters += [f"{_pointer(tensor)} ST_RESTRICT scratch{k}" for k, tensor in enumerate(scratch)]
    return [
        f'extern "C" __global__ void {_bounds(kernel)} {kernel.name}({", ".join(parameters)}) {{',
        "  ST_DYNAMIC_SHARED(shared)",
        *indent(_device_body(kernel, calls)),
        "}",
    ]


def _host_entry(kernel: ScheduledKernel, calls: Sequence[Call], scratch: Sequence[TensorType]) -> list[str]:
    """The function for the host, which runs some of the blocks one after another."""
    graph, read, inputs, outputs = kernel.graph, _buffers(kernel), kernel.inputs, kernel.outputs
    return [
        f'extern "C" void {kernel.name}(void** buffers, int64_t first_block, int64_t last_block) {{',
        f"  char* const shared = st::shared_memory({kernel.shared_bytes * kernel.cluster});",
        "  (void)shared;",
        *(_unpack(k, read[i], graph[i].tensor.dtype, "const ") for k, i in enumerate(inputs)),
        *(_unpack(len(inputs) + k, f"out{k}", graph[i].tensor.dtype, "") for k, i in enumerate(outputs)),
        *(_unpack(len(inputs + outputs) + k, f"scratch{k}", t.dtype, "") for k, t in enumerate(scratch)),
        "  for (int64_t block = first_block; block < last_block; ++block) {",
        *indent(chain(calls), 2),
        "  }",
        "}",
    ]


def _pointer(tensor: TensorType) -> str:
    return f"{scalar.STORAGE[tensor.dtype]}*"


def _emitter(graph: Graph, part: Part, crossing: Collection[int]) -> PartEmitter | LoopEmitter | TeamEmitter:
    if part.team is not None:
        return TeamEmitter(graph, part, "PART", crossing)
    if part.pattern.loop is not None:
        return LoopEmitter(graph, part, "PART", crossing)
    return PartEmitter(graph, part, "PART", Names(graph), crossing)


def _bounds(kernel: ScheduledKernel) -> str:
    """What the compiler may count on, and has to leave room for: the registers of blocks that run together."""
    together = kernel.residency.per_multiprocessor if kernel.residency else kernel.together
    clusters = f"__cluster_dims__({kernel.cluster}, 1, 1) " if kernel.cluster > 1 else ""
    return f"{clusters}__launch_bounds__({kernel.threads}{f', {together}' if together else ''})"


def _device_body(kernel: ScheduledKernel, calls: Sequence[Call]) -> list[str]:
    """What a block of the launch does: one block's work; or in turn a share of each phase's."""
    if kernel.residency is None:
        of_cluster = f" / {kernel.cluster}" if kernel.cluster > 1 else ""
        return [f"const int64_t block = blockIdx.x{of_cluster};", *chain(calls)]
    lines: list[str] = []
    first = part = 0
    for k, phase in enumerate(kernel.phases):
        alone = k >= kernel.residency.alone
        if k:
            lines.append("__syncthreads();" if k > kernel.residency.alone else _BARRIERS[alone])
        for spread, group in groupby(phase, lambda p: p.spread):
            together = list(group)
            count = sum(p.split.blocks for p in together)
            mine = chain(calls[part : part + len(together)])
            each = f"ST_BLOCKS_IN_TURN({first}, {count})" if alone or spread else f"ST_EACH_BLOCK({first}, {count})"
            if together[0].split.cluster > 1:
                each = f"ST_EACH_CLUSTER({first}, {count}, {kernel.cluster})"
            lines += [each, *indent(mine), "ST_END_BLOCK"]
            first, part = first + count, part + len(together)
    return lines


_BARRIERS = {False: "ST_GRID_BARRIER", True: "ST_LAST_BLOCK_ALONE"}


def structure(source: KernelSource) -> tuple[object, ...]:
    """Equal for kernels that differ only in the names that HLO gave their values: one can stand in for the other."""
    text = _canonical(re.sub(rf"\b{source.name}\b", "KERNEL", source.text))
    buffers = source.inputs, source.outputs, source.scratch
    return text, buffers, source.grid, source.block, source.shared_bytes, source.phases, source.cluster


def _unpack(k: int, name: str, dtype: str, const: str) -> str:
    ctype = scalar.STORAGE[dtype]
    return f"  {const}{ctype}* const ST_RESTRICT {name} = static_cast<{const}{ctype}*>(buffers[{k}]);"


def _shared_body(bodies: dict[str, str], functions: list[str], head: str, function: str, k: int) -> str:
    """Parts with the same text share one function: an optimizer's tensors of one shape differ in their pointers alone.

    Identifiers are numbered by first appearance before texts are compared, since they come from HLO names, which
    differ.
    """
    key = _canonical(f"{head}\n{function}")
    if key not in bodies:
        bodies[key] = f"part_{k}"
        text = f"{head}\n{function}" if head else function
        for name in _declared(head) if k else ():
            text = re.sub(rf"\b{name}\b", f"{name}_part{k}_", text)  # No local name ends in an underscore.
        functions.append(re.sub(r"\bPART\b", f"part_{k}", text) + "\n")
    return bodies[key]


def _declared(head: str) -> list[str]:
    """The functors and tables declared at file scope, where two parts may use the same name."""
    return re.findall(r"^(?:struct|ST_TABLE \w+) (\w+)", head, re.MULTILINE)


_FIXED = r"(?!ST_|(?:st|const|index|block|row|PART|shared|float|double|u?int\d+_t|bool|true|false)\b)"
"""Words that mean the same in every part."""


def _canonical(text: str) -> str:
    seen: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return seen.setdefault(match.group(0), f"n{len(seen)}")

    return re.sub(rf"(?<![\w:.]){_FIXED}[A-Za-z_]\w*", rename, without_comments(text))
