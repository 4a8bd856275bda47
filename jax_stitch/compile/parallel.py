"""Compiling the kernels of a plan side by side."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from jax_stitch.compile import effort
from jax_stitch.compile.errors import CompilerTimeout
from jax_stitch.compile.host import HostKernel, compile_host
from jax_stitch.compile.process import Together, together
from jax_stitch.compile.ptx import PtxKernel, compile_ptx
from jax_stitch.devices.cpu import usable_cores
from jax_stitch.devices.model import Device

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource

Kernel = HostKernel | PtxKernel


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
    where nobody waits for them (``effort.low``).

    ``progress(done, total)`` is called on this thread after each. At the first failure, or an interrupt, the compilers
    that run are killed and those not begun are dropped.
    """
    if not sources:
        return ()
    if effort.low.get():
        kernels = []
        for source in sources:
            kernels.append(compile_kernel(source, target))
            if progress is not None:
                progress(len(kernels), len(sources))
        return tuple(kernels)
    # The compilers are child processes, or release the interpreter lock: threads are enough.
    group = Together()
    token = together.set(group)
    try:
        with ThreadPoolExecutor(min(len(sources), usable_cores()), thread_name_prefix="jax-stitch-compile") as pool:
            futures: list[Future[Kernel]] = [
                pool.submit(contextvars.copy_context().run, compile_kernel, source, target) for source in sources
            ]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    if progress is not None:
                        progress(done, len(sources))
            except BaseException:
                group.give_up()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        together.reset(token)
    return tuple(future.result() for future in futures)
