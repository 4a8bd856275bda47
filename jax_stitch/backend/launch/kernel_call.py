"""Stitched kernels as one JAX operation: a kernel, or on a CPU several in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jax_stitch.backend.compile import HostKernel, PtxKernel
from jax_stitch.backend.launch import choice, gpu, host, host_call, ptx
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.backend.launch.host_call import Part
from jax_stitch.util.options.launchers import Launcher

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource
    from jax_stitch.graph.model import TensorType


SENTINEL = jax.ShapeDtypeStruct((0,), jnp.uint8)
"""One more result, without elements, of a kernel with several.

Without it, a loop whose body is one kernel would have the custom call itself as the root of its body: XLA turns a
tuple of all results of a call, in order, into the call. XLA's loop passes take the operands of a body's root for what
the next iteration gets, whatever the root is (``WhileUtil::GetInvariantGTEsForWhileBody``). A kernel that reads the
carry in order then looks like a loop that changes nothing, and XLA moves the kernel out of the loop: a wrong result,
or a loop without end. No carry is equal to the results with this one.
"""

ARRIVALS = jax.ShapeDtypeStruct((2,), jnp.uint32)
"""One more result of a kernel whose blocks meet: the word that they are counted in (``backend/runtime/arrivals.h``).

A result is memory that nothing else uses while the call runs: not another call, not one of another program or stream,
nor the same call of the same executable in another run. So no two launches that run at the same time count in one word,
and since it may hold anything at first, it costs no launch that clears it. No other call reads it, as ``SENTINEL``.
"""


@dataclass(frozen=True, slots=True)
class Layouts:
    """The physical layouts (minor-to-major; ``None``: row-major) that a kernel's inputs and outputs have in
    memory."""

    inputs: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[tuple[int, ...] | None, ...]


def call(
    kernel: HostKernel | PtxKernel,
    source: KernelSource,
    *inputs: jax.Array,
    layouts: Layouts | None = None,
    aliases: Mapping[int, int] | None = None,
    work: int | None = None,
    after: Sequence[jax.Array] = (),
    pooled: bool = True,
) -> tuple[jax.Array, ...]:
    """Call a kernel on arrays or tracers, and return its outputs.

    ``layouts``: of the buffers, where not all row-major; XLA inserts copies where a value is in another one.
    ``aliases``: input index to the output index that is written in place, besides those of ``source``. ``work``: on the
    CPU, about how many bytes' worth of work the kernel is, for the choice between one thread and several; the size of
    the buffers by default (give more for a kernel that loops). ``after``: arrays that it waits for, on the CPU.
    ``pooled``: whether it is helped there by threads of XLA's pool, or by our own, which stay awake longer and get in
    the way of what else that pool does. Where the grid or every output is empty nothing runs.

    The operation can be neither differentiated nor mapped by ``vmap`` (JAX raises): stitching happens on the lowered
    program, where both are done. Raises ``ValueError`` where inputs do not match the kernel's.
    """
    _check(source, inputs)
    aliases = dict(source.aliases) | dict(aliases or {})
    results = _types(source.outputs)
    if not runs(source):
        with jax.enable_x64(True):  # else 64-bit types would be narrowed
            return tuple(jnp.zeros(o.shape, o.dtype) for o in results)
    if isinstance(kernel, HostKernel):
        part = Part(kernel, source, work, 0, tuple(range(len(inputs) + len(results))))
        return call_in_turn(
            [part], inputs, source.outputs, aliases=aliases, layouts=layouts, after=after, pooled=pooled
        )
    outputs = (*results, *_types(source.scratch))
    if source.phases:
        outputs += (ARRIVALS,)
    elif len(results) > 1 and not source.scratch:
        outputs += (SENTINEL,)
    if choice.in_use() is Launcher.FFI:
        target, attributes = gpu.TARGET, gpu.attributes(kernel, source)
    else:
        target, attributes = ptx.TARGET, ptx.attributes(kernel, source)
    return _called(target, attributes, inputs, outputs, layouts, aliases)[: len(results)]


def call_in_turn(
    parts: Sequence[Part],
    inputs: Sequence[jax.Array],
    outputs: Sequence[TensorType],
    temporaries: Sequence[TensorType] = (),
    aliases: Mapping[int, int] | None = None,
    *,
    layouts: Layouts | None = None,
    after: Sequence[jax.Array] = (),
    pooled: bool = True,
) -> tuple[jax.Array, ...]:
    """Call kernels on the CPU, one level after the other, and return the call's outputs.

    ``temporaries`` are the values between the kernels that nobody else reads. The other arguments are those of
    ``call``, for the buffers of the whole call.
    """
    for part in parts:
        host.hold(part.kernel)
    attributes, on_the_way = host_call.attributes(parts, temporaries, len(inputs), len(outputs), pooled)
    weight = host_call.weight(inputs, parts)
    unread = (*after, *(() if weight is None else (weight,)))
    results = _types(outputs)
    if on_the_way:
        results += (jax.ShapeDtypeStruct((on_the_way,), jnp.uint8),)
    elif len(results) > 1:
        results += (SENTINEL,)
    layouts = layouts and Layouts((*layouts.inputs, *(None for _ in unread)), layouts.outputs)
    return _called(host.TARGET, attributes, (*inputs, *unread), results, layouts, aliases)[: len(outputs)]


def runs(source: KernelSource) -> bool:
    """Return whether a kernel has anything to do: blocks, and an output with elements."""
    return source.grid > 0 and any(t.size for t in source.outputs)


def _called(
    target: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[jax.Array],
    outputs: Sequence[jax.ShapeDtypeStruct],
    layouts: Layouts | None,
    aliases: Mapping[int, int] | None,
) -> tuple[jax.Array, ...]:
    operation = jax.ffi.ffi_call(
        target,
        outputs,
        input_layouts=_major_to_minor(layouts.inputs) if layouts else None,
        output_layouts=_output_layouts(layouts, len(outputs)) if layouts else None,
        input_output_aliases=dict(aliases) if aliases else None,
    )
    return tuple(operation(*inputs, **attributes))


def _types(tensors: Sequence[TensorType]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(t.dims, numpy_dtype(t)) for t in tensors)


def _major_to_minor(layouts: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
    return [None if layout is None else layout[::-1] for layout in layouts]


def _output_layouts(layouts: Layouts, count: int) -> list[tuple[int, ...] | None]:
    return [*_major_to_minor(layouts.outputs), *(None for _ in range(count - len(layouts.outputs)))]


def _check(source: KernelSource, inputs: Sequence[jax.Array]) -> None:
    if len(inputs) != len(source.inputs):
        raise ValueError(f"The kernel {source.name!r} takes {len(source.inputs)} inputs, not {len(inputs)}")
    for i, (value, wanted) in enumerate(zip(inputs, source.inputs, strict=True)):
        if tuple(value.shape) != wanted.dims or value.dtype != numpy_dtype(wanted):
            raise ValueError(
                f"Input {i} of the kernel {source.name!r} is {wanted}, not {value.dtype}{list(value.shape)}"
            )
