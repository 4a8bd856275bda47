"""Compiling the kernels of a plan side by side."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from jax_stitch.backend.compile import effort
from jax_stitch.backend.compile.errors import CompilerTimeout, KernelCompileError
from jax_stitch.backend.compile.host import HostKernel, compile_batch, compile_host, flags_of, is_kept, is_slow
from jax_stitch.backend.compile.process import Together, together
from jax_stitch.backend.compile.ptx import PtxKernel, compile_ptx
from jax_stitch.devices.cpu import usable_cores
from jax_stitch.devices.model import Device

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

Kernel = HostKernel | PtxKernel

_SMALL, _FEW, _TOGETHER = 12_000, 6_000, 30_000
"""Characters of kernels that a host compiler gets with others; so few that it is not worth a second run, which takes as
long to begin as 5,000 of them; and of all that it gets at a time."""


def target_of(device: Device) -> str:
    """Return what kernels for a device are compiled to."""
    return "host" if device.sm is None else device.sm


def compile_kernel(source: KernelSource, target: str) -> Kernel:
    """Compile one kernel for ``target``: "host", or a GPU architecture such as "sm_90".

    Raises ``CompilerTimeout``, which names the kernel, and what the compilers' own functions raise.
    """
    token = effort.kernel.set(len(source.code))
    try:
        return compile_host(source) if target == "host" else compile_ptx(source, target)
    except CompilerTimeout as slow:
        slow.kernel = source.name
        raise
    finally:
        effort.kernel.reset(token)


def compile_all(
    sources: Sequence[KernelSource], target: str, progress: Callable[[int, int], None] | None = None
) -> tuple[Kernel, ...]:
    """Compile several kernels for ``target`` and returns them in order: as many at a time as there are cores, or one
    where nobody waits for them (``effort.low``). A host compiler gets small ones together.

    ``progress(done, total)`` is called on this thread as they are done. At the first failure, or an interrupt, the
    compilers that run are killed and those not begun are dropped.
    """
    if not sources:
        return ()
    compiled: dict[int, Kernel] = {}
    apart: list[int] = []

    def take(batch: Sequence[int], kernels: Sequence[Kernel] | None) -> None:
        if kernels is None:
            apart.extend(batch)
            return
        compiled.update(zip(batch, kernels, strict=True))
        if progress is not None:
            progress(len(compiled), len(sources))

    def compile_it(batch: Sequence[int]) -> Sequence[Kernel] | None:
        chosen = [sources[k] for k in batch]
        return _compile_together(chosen) if len(chosen) > 1 else [compile_kernel(chosen[0], target)]

    run = _in_turn if effort.low.get() else _side_by_side
    run(_batches(sources) if target == "host" else [[k] for k in range(len(sources))], compile_it, take)
    if apart:  # The one to blame shows.
        run([[k] for k in apart], compile_it, take)
    return tuple(compiled[k] for k in range(len(sources)))


_Compile = Callable[[Sequence[int]], "Sequence[Kernel] | None"]
_Take = Callable[[Sequence[int], "Sequence[Kernel] | None"], None]


def _in_turn(batches: Sequence[Sequence[int]], compile_it: _Compile, take: _Take) -> None:
    for batch in batches:
        take(batch, compile_it(batch))


def _side_by_side(batches: Sequence[Sequence[int]], compile_it: _Compile, take: _Take) -> None:
    """Compile on as many threads as there are cores: the compilers are child processes, or release the
    interpreter lock.
    """
    group = Together()
    token = together.set(group)
    try:
        with ThreadPoolExecutor(min(len(batches), usable_cores()), thread_name_prefix="jax-stitch-compile") as pool:
            futures: dict[Future[Sequence[Kernel] | None], Sequence[int]] = {
                pool.submit(contextvars.copy_context().run, compile_it, batch): batch for batch in batches
            }
            try:
                for future in as_completed(futures):
                    take(futures[future], future.result())
            except BaseException:
                group.give_up()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        together.reset(token)


def _batches(sources: Sequence[KernelSource]) -> list[list[int]]:
    """Return what a host compiler gets at a time, as places in ``sources``: small kernels that it has not compiled
    before together, about as much of them for each core.
    """
    small = [k for k, s in enumerate(sources) if len(s.code) <= _SMALL and not is_kept(s) and not is_slow(s)]
    cores = 1 if effort.low.get() else usable_cores()
    most = min(_TOGETHER, max(sum(len(sources[k].code) for k in small) // cores, _FEW))
    batches = [[k] for k in range(len(sources)) if k not in set(small)]
    for flags in dict.fromkeys(flags_of(sources[k]) for k in small):
        chosen = [k for k in small if flags_of(sources[k]) == flags]
        count = math.ceil(sum(len(sources[k].code) for k in chosen) / most)
        filled = [list[int]() for _ in range(count)]
        lengths = [0] * count
        for k in sorted(chosen, key=lambda k: -len(sources[k].code)):
            least = lengths.index(min(lengths))
            filled[least].append(k)
            lengths[least] += len(sources[k].code)
        batches += [part for batch in filled if batch for part in _of_unlike_names(batch, sources)]
    return batches


def _of_unlike_names(batch: Sequence[int], sources: Sequence[KernelSource]) -> Iterator[list[int]]:
    """Yield the kernels of a batch; those whose name another has are alone."""
    names = {sources[k].name: k for k in reversed(batch)}
    yield list(names.values())
    yield from ([k] for k in batch if names[sources[k].name] != k)


def _compile_together(sources: Sequence[KernelSource]) -> Sequence[Kernel] | None:
    """Return the kernels, by one run of the host's compiler; None where that fails or takes too long."""
    token = effort.kernel.set(sum(len(s.code) for s in sources))
    try:
        return compile_batch(sources)
    except (KernelCompileError, CompilerTimeout):
        return None
    finally:
        effort.kernel.reset(token)
