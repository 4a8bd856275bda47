"""Compiling the kernels of a plan side by side."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from jax_stitch.compile import effort
from jax_stitch.compile.errors import CompilerTimeout, KernelCompileError
from jax_stitch.compile.host import HostKernel, compile_batch, compile_host, is_kept
from jax_stitch.compile.process import Together, together
from jax_stitch.compile.ptx import PtxKernel, compile_ptx
from jax_stitch.devices.cpu import usable_cores
from jax_stitch.devices.model import Device

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

Kernel = HostKernel | PtxKernel

_SMALL, _FEW, _TOGETHER = 12_000, 6_000, 30_000
"""Characters of kernels that a host compiler gets with others; so few that it is not worth a second run, which takes as
long to begin as 5,000 of them; and of all that it gets at a time."""


def target_of(device: Device) -> str:
    """What kernels for a device are compiled to."""
    return "host" if device.sm is None else device.sm


def compile_kernel(source: KernelSource, target: str) -> Kernel:
    """Compiles one kernel for ``target``: "host", or a GPU architecture such as "sm_90".

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
    """Compiles several kernels for ``target`` and returns them in order: as many at a time as there are cores, or one
    where nobody waits for them (``effort.low``). A host compiler gets small ones together.

    ``progress(done, total)`` is called on this thread as they are done. At the first failure, or an interrupt, the
    compilers that run are killed and those not begun are dropped.
    """
    if not sources:
        return ()
    batches = _batches(sources) if target == "host" else [[k] for k in range(len(sources))]
    compiled: dict[int, Kernel] = {}

    def compile_it(batch: Sequence[int]) -> dict[int, Kernel]:
        return dict(zip(batch, _compile_batch([sources[k] for k in batch], target), strict=True))

    def take(kernels: dict[int, Kernel]) -> None:
        compiled.update(kernels)
        if progress is not None:
            progress(len(compiled), len(sources))

    if effort.low.get():
        for batch in batches:
            take(compile_it(batch))
    else:
        _side_by_side([(compile_it, batch) for batch in batches], take)
    return tuple(compiled[k] for k in range(len(sources)))


_Work = tuple[Callable[[Sequence[int]], dict[int, Kernel]], Sequence[int]]


def _side_by_side(work: Sequence[_Work], take: Callable[[dict[int, Kernel]], None]) -> None:
    """Does the work on as many threads as there are cores: the compilers are child processes, or release the
    interpreter lock."""
    group = Together()
    token = together.set(group)
    try:
        with ThreadPoolExecutor(min(len(work), usable_cores()), thread_name_prefix="jax-stitch-compile") as pool:
            futures: list[Future[dict[int, Kernel]]] = [
                pool.submit(contextvars.copy_context().run, call, batch) for call, batch in work
            ]
            try:
                for future in as_completed(futures):
                    take(future.result())
            except BaseException:
                group.give_up()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        together.reset(token)


def _batches(sources: Sequence[KernelSource]) -> list[list[int]]:
    """What a host compiler gets at a time, as places in ``sources``: small kernels that it has not compiled before
    together, about as much of them for each core."""
    small = [k for k, s in enumerate(sources) if len(s.code) <= _SMALL and not is_kept(s)]
    cores = 1 if effort.low.get() else usable_cores()
    most = min(_TOGETHER, max(sum(len(sources[k].code) for k in small) // cores, _FEW))
    batches = [[k] for k in range(len(sources)) if k not in set(small)]
    for is_wide in (False, True):  # They have other flags.
        chosen = [k for k in small if sources[k].has_wide_vectors == is_wide]
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
    """The kernels of a batch; those whose name another has are alone."""
    names = {sources[k].name: k for k in reversed(batch)}
    yield list(names.values())
    yield from ([k] for k in batch if names[sources[k].name] != k)


def _compile_batch(sources: Sequence[KernelSource], target: str) -> Sequence[Kernel]:
    """Compiles kernels together; each by itself where that fails or takes too long, so that the one to blame shows."""
    if len(sources) > 1:
        token = effort.kernel.set(sum(len(s.code) for s in sources))
        try:
            return compile_batch(sources)
        except (KernelCompileError, CompilerTimeout):
            pass
        finally:
            effort.kernel.reset(token)
    return [compile_kernel(source, target) for source in sources]
