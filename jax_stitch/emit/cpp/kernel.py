"""A kernel of the kernel language as C++: its parts' functions, and the entry points for CUDA and the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from jax_stitch.emit.cpp import scalar
from jax_stitch.emit.cpp.lines import block, indent
from jax_stitch.emit.cpp.part import function, head
from jax_stitch.emit.dispatch import Call, chain
from jax_stitch.emit.source import without_comments
from jax_stitch.kernel.model import Buffer, Kernel, Part, Phase, TeamShape


def text(kernel: Kernel) -> str:
    """Return the C++ text, which NVRTC and a host compiler both take."""
    functions, names = _functions(kernel.parts)
    return "\n".join(
        [
            '#include "stitch.h"',
            "",
            *functions,
            "#ifdef __CUDACC__",
            *_device_entry(kernel, names),
            "#else",
            *_host_entry(kernel, names),
            "#endif",
            "",
        ]
    )


def _functions(parts: Sequence[Part]) -> tuple[list[str], list[str]]:
    """Return the functions of the parts, those that are alike once; and the name of each part's."""
    bodies: dict[str, str] = {}
    functions: list[str] = []
    if len(parts) == 1:
        return [_numbered(*_texts(parts[0]), 0)], ["part_0"]
    names = [_shared_body(bodies, functions, *_texts(part), k) for k, part in enumerate(parts)]
    return functions, names


def _texts(part: Part) -> tuple[str, str]:
    body = function(part, "PART")
    return head(part), body


def _calls(kernel: Kernel, phase: Phase, names: Sequence[str]) -> list[tuple[Part, Call]]:
    """Return what the blocks of a phase call."""
    calls: list[tuple[Part, Call]] = []
    for call in phase.calls:
        part = kernel.parts[call.part]
        arguments: list[tuple[str, str]] = []
        for parameter, name in zip(part.parameters, call.arguments, strict=True):
            read_only = not parameter.written and not parameter.scratch
            pointer = f"{scalar.STORAGE[parameter.dtype]}*"
            arguments.append((f"const {pointer}" if read_only else pointer, name))
        rest = ("shared", "ST_ARRIVALS") if _is_spread(part) else ("shared",)
        if isinstance(part.shape, TeamShape) and part.shape.pieces > 1:
            assert len(kernel.parts) == 1, "a helped team shares a launch, which has one place to meet"
            rest = ("shared", f"ST_MEETING({len(kernel.inputs) + len(kernel.outputs) + len(kernel.scratch)})")
        calls.append((part, Call(names[call.part], call.first, call.last, tuple(arguments), rest)))
    return calls


def _is_spread(part: Part) -> bool:
    return isinstance(part.shape, TeamShape) and part.shape.spread


def _device_entry(kernel: Kernel, names: Sequence[str]) -> list[str]:
    """Return the kernel for CUDA."""
    access = _accesses(kernel)
    parameters = [f"const {_pointer(b)} {access[b.name]} {b.name}" for b in kernel.inputs]
    parameters += [f"{_pointer(b)} {access[b.name]} {b.name}" for b in (*kernel.outputs, *kernel.scratch)]
    parameters += ["unsigned long long* ST_RESTRICT arrivals"] * kernel.launch.resident
    return [
        f'extern "C" __global__ void {_bounds(kernel)} {kernel.name}({", ".join(parameters)}) {{',
        "  ST_DYNAMIC_SHARED(shared)",
        *indent(_device_body(kernel, names)),
        "}",
    ]


def _host_entry(kernel: Kernel, names: Sequence[str]) -> list[str]:
    """Return the function for the host, which runs some of the blocks one after another."""
    calls = [call for phase in kernel.phases for _, call in _calls(kernel, phase, names)]
    buffers = [*kernel.inputs, *kernel.outputs, *kernel.scratch]
    consts = ["const "] * len(kernel.inputs) + [""] * len(buffers)
    access = _accesses(kernel)
    unpacked = [_unpack(k, b, consts[k], access[b.name]) for k, b in enumerate(buffers)]
    return [
        f'extern "C" void {kernel.name}(void** buffers, int64_t first_block, int64_t last_block) {{',
        f"  char* const shared = st::shared_memory({kernel.launch.shared_bytes * kernel.launch.cluster});",
        "  (void)shared;",
        *unpacked,
        "  for (int64_t block = first_block; block < last_block; ++block) {",
        *indent(chain(calls), 2),
        "  }",
        "}",
    ]


def _pointer(buffer: Buffer) -> str:
    return f"{scalar.STORAGE[buffer.dtype]}*"


def _accesses(kernel: Kernel) -> dict[str, str]:
    """Return what a compiler may assume of the pointer to each buffer: that it is the only one to its memory; or
    nothing if one phase reads what another has written, which a compiler would take for constants if it reads inputs
    beside.
    """
    shared = {name for b in kernel.outputs if b.over for name in (b.over, b.name)}
    crossing = {
        name
        for phase in kernel.phases
        for call in phase.calls
        for p, name in zip(kernel.parts[call.part].parameters, call.arguments, strict=True)
        if p.crossing
    }
    names = [b.name for b in (*kernel.inputs, *kernel.outputs, *kernel.scratch)]
    return {
        name: "ST_IN_PLACE" if name in shared else "ST_CROSSING" if name in crossing else "ST_RESTRICT"
        for name in names
    }


def _bounds(kernel: Kernel) -> str:
    """Return the launch bounds: the registers of blocks that run together have to fit."""
    launch = kernel.launch
    clusters = f"__cluster_dims__({launch.cluster}, 1, 1) " if launch.cluster > 1 else ""
    together = f", {launch.together}" if launch.together else ""
    return f"{clusters}__launch_bounds__({launch.threads}{together})"


def _device_body(kernel: Kernel, names: Sequence[str]) -> list[str]:
    """Return what a block of the launch does: one block's work, or in turn a share of each phase's."""
    launch = kernel.launch
    if not launch.resident:
        of_cluster = f" / {launch.cluster}" if launch.cluster > 1 else ""
        calls = [call for phase in kernel.phases for _, call in _calls(kernel, phase, names)]
        return [f"const int64_t block = blockIdx.x{of_cluster};", *chain(calls)]
    lines: list[str] = []
    for k, phase in enumerate(kernel.phases):
        is_last_block = k >= launch.last_block_from
        if k:
            lines.append("__syncthreads();" if k > launch.last_block_from else _BARRIERS[is_last_block])
        for spread, group in groupby(_calls(kernel, phase, names), lambda call: _is_spread(call[0])):
            together = list(group)
            calls, shape = [call for _, call in together], together[0][0].shape
            cluster = 1 if isinstance(shape, TeamShape) or shape.cluster == 1 else launch.cluster
            each = _blocks_in_turn(calls[0].first, calls[-1].last, cluster, (is_last_block or spread) and cluster == 1)
            lines += block(each, [*chain(calls), "__syncthreads();"])
    return lines if launch.last_block_from < len(kernel.phases) else [*lines, "ST_LEAVE_GRID"]


def _blocks_in_turn(first: int, last: int, cluster: int, all_of_them: bool) -> str:
    """Return the head of the loop of a block of the launch, or of a cluster, over blocks of a phase: over its share of
    them, or over all, where it is the last or the launch's blocks share out the work of each.
    """
    if all_of_them:
        return f"for (int64_t block = {first}; block < {last}; ++block)"
    of_cluster = f" / {cluster}" if cluster > 1 else ""
    start = f"{first} + blockIdx.x{of_cluster}" if first else f"blockIdx.x{of_cluster}"
    return f"for (int64_t block = {start}; block < {last}; block += gridDim.x{of_cluster})"


_BARRIERS = {False: "ST_GRID_BARRIER", True: "ST_LAST_BLOCK_ALONE"}


def _unpack(k: int, buffer: Buffer, const: str, access: str) -> str:
    ctype = scalar.STORAGE[buffer.dtype]
    return f"  {const}{ctype}* const {access} {buffer.name} = static_cast<{const}{ctype}*>(buffers[{k}]);"


def _shared_body(bodies: dict[str, str], functions: list[str], head: str, function: str, k: int) -> str:
    """Return parts as functions that those with the same text share: an optimizer's tensors of one shape differ in
    their pointers alone.

    Identifiers are numbered by first appearance before texts are compared, since they come from HLO names, which
    differ.
    """
    key = canonical(f"{head}\n{function}")
    if key not in bodies:
        bodies[key] = f"part_{k}"
        functions.append(_numbered(head, function, k))
    return bodies[key]


def _numbered(head: str, function: str, k: int) -> str:
    """Return the text of a part by its number, with names at file scope that no other part has."""
    text = f"{head}\n{function}" if head else function
    for name in _declared(head) if k else ():
        text = re.sub(rf"\b{name}\b", f"{name}_part{k}_", text)  # No local name ends in an underscore.
    return re.sub(r"\bPART\b", f"part_{k}", text) + "\n"


def _declared(head: str) -> list[str]:
    """Return the functors and tables declared at file scope, where two parts may use the same name."""
    return re.findall(r"^(?:struct|ST_TABLE \w+) (\w+)", head, re.MULTILINE)


_FIXED = r"(?!ST_|(?:st|const|index|block|row|PART|shared|float|double|u?int\d+_t|bool|true|false)\b)"
"""Words that mean the same in every part."""


def canonical(text: str) -> str:
    seen: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return seen.setdefault(match.group(0), f"n{len(seen)}")

    return re.sub(rf"(?<![\w:.]){_FIXED}[A-Za-z_]\w*", rename, without_comments(text))
