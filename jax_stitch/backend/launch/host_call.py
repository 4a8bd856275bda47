"""A call of kernels on the CPU: what its attributes say to the handler, and its operands and results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Struct

from jax_stitch.backend.compile.host import HostKernel
from jax_stitch.backend.launch.element_types import byte_size

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource
    from jax_stitch.graph.model import TensorType

_EXPENSIVE = 8 << 20
"""Bytes' worth of work, about a millisecond of one core, from which a call should return before it is done."""

_XLA_EXPENSIVE = 1000
"""Floating-point operations from which XLA:CPU runs a program in a thread of its own (``PjRtCpuExecutable``)."""

_LINE = 64
"""Bytes that a temporary is aligned to."""


class Part(Struct, frozen=True, eq=False):
    """A kernel in a call."""

    kernel: HostKernel
    source: KernelSource
    work: int | None
    """About how many bytes' worth of work it is; None for as much as its buffers."""
    level: int
    """Its first: it reads what those of lower levels have written. Each phase is a level more."""
    places: tuple[int, ...]
    """Buffers of its inputs and outputs: by number among the call's inputs, then outputs; or -1 - number of a
    temporary."""

    @property
    def bytes(self) -> int:
        """Return about how many bytes' worth of work it is."""
        if self.work is not None:
            return self.work
        return sum(byte_size(t) for t in (*self.source.inputs, *self.source.outputs))

    @property
    def levels(self) -> range:
        """Return the levels at which it runs."""
        return range(self.level, self.level + len(self.source.host_phases))


class Memory(Struct, frozen=True):
    """Where temporaries lie, by number, in one array of bytes."""

    offsets: tuple[int, ...]
    size: int


def laid_out(sizes: Sequence[int], lives: Sequence[range]) -> Memory:
    """Return where temporaries of these bytes lie that hold values at these levels: each at the first place that is
    free for as long."""
    offsets: list[int] = []
    for number, (size, life) in enumerate(zip(sizes, lives, strict=True)):
        others = (n for n in range(number) if lives[n].start < life.stop and life.start < lives[n].stop)
        offset = 0
        for start, end in sorted((offsets[n], offsets[n] + sizes[n]) for n in others):
            if offset + size <= start:
                break
            offset = max(offset, math.ceil(end / _LINE) * _LINE)
        offsets.append(offset)
    return Memory(tuple(offsets), max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0))


def lives_of(parts: Sequence[Part], count: int) -> list[range]:
    """Return the levels at which each of the call's temporaries holds a value."""
    levels: list[list[int]] = [[] for _ in range(count)]
    for part in parts:
        for place in part.places:
            if place < 0:
                levels[-1 - place] += part.levels
    return [range(min(at), max(at) + 1) for at in levels]


def attributes(
    parts: Sequence[Part], temporaries: Sequence[TensorType], inputs: int, outputs: int, pooled: bool
) -> tuple[dict[str, Any], int]:
    """Return the attributes of a call with so many inputs and outputs, and the bytes of one more output for what it
    needs on the way (0 for none).

    They name kernels by their ids, not their addresses, so that a program from a cache finds them too.
    """
    scratch = [(part, t) for part in parts for t in part.source.scratch]
    sizes = [byte_size(t) for t in (*temporaries, *(t for _, t in scratch))]
    memory = laid_out(sizes, [*lives_of(parts, len(temporaries)), *(part.levels for part, _ in scratch)])
    own = iter(memory.offsets[len(temporaries) :])
    numbers = [len(parts)]
    for part in parts:
        places = [place if place >= 0 else -1 - memory.offsets[-1 - place] for place in part.places]
        places += [-1 - next(own) for _ in part.source.scratch]
        numbers += (len(places), *places)
    for level in range(max(part.levels.stop for part in parts)):
        numbers += _level(parts, level)
    first, more = parts[0].kernel.name, len(parts) - 1
    named: dict[str, Any] = {
        "kernels": "\n".join(part.kernel.id for part in parts),
        "name": f"{first} and {more} more" if more else first,
        "work": np.array(numbers, np.int64),
        "pooled": np.int64(pooled),
        "inputs": np.int64(inputs),
        "outputs": np.int64(outputs + (memory.size > 0)),
    }
    return named, memory.size


def _level(parts: Sequence[Part], level: int) -> Iterator[int]:
    """Yield what the handler reads of a level: its work, how many steps it has, and of each the kernel, the first block
    and how many there are."""
    steps = [(number, part, level - part.level) for number, part in enumerate(parts) if level in part.levels]
    yield sum(part.bytes // len(part.levels) for _, part, _ in steps)
    yield len(steps)
    for number, part, phase in steps:
        blocks = part.source.host_phases
        yield from (number, sum(blocks[:phase]), blocks[phase])


def weight(inputs: Sequence[jax.Array], parts: Sequence[Part]) -> jax.Array | None:
    """Return one more input for an expensive call, that it does not read; None where it needs none.

    XLA:CPU runs a program in the thread that calls it where the program has next to no floating-point operations, and
    a custom call has none to it. As many as it takes come with this array. Else a call would not return before it is
    done, as those of ``jax.jit`` do, and its results would lie elsewhere: in the heap of the calling thread, which the
    C library gives back to the system and gets again, with a page fault for every 4 KB, more often than a pool
    thread's.
    """
    some = next((x for x in inputs if x.size), None)
    if some is None or sum(part.bytes for part in parts) < _EXPENSIVE:
        return None
    element = jax.lax.slice(some, (0,) * some.ndim, (1,) * some.ndim).reshape(())
    is_set = jax.lax.ne(element, jax.lax.full_like(element, 0))  # `!=` would promote, which users can forbid
    return jnp.where(is_set, jnp.arange(2 * _XLA_EXPENSIVE, dtype=jnp.int32), 0)
