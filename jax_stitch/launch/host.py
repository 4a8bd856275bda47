"""Kernels on the CPU: one FFI handler, from the wheel or compiled once per machine, that finds kernels by id."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.compile.host import HostKernel
from jax_stitch.launch import native
from jax_stitch.launch.element_types import byte_size

if TYPE_CHECKING:
    from hlo_parser import Instruction
    from jax_stitch.emit.source import KernelSource

TARGET = "jax_stitch_host_kernel"

_EXPENSIVE = 8 << 20
"""Bytes' worth of work, about a millisecond of one core, from which a call should return before it is done."""

_XLA_EXPENSIVE = 1000
"""Floating-point operations from which XLA:CPU runs a program in a thread of its own (``PjRtCpuExecutable``)."""

_lock = threading.Lock()
_registered: weakref.WeakValueDictionary[str, HostKernel] = weakref.WeakValueDictionary()
"""The kernels that programs can call. One that neither a program nor an executable has any more is unloaded."""
_called: dict[str, HostKernel] = {}
"""Those that were called by themselves, and have no program to hold them: they stay."""
_held: ContextVar[bool] = ContextVar("jax_stitch_held_by_program", default=False)


def register(kernel: HostKernel) -> None:
    """Makes a kernel callable by XLA programs of this process, by its id, as long as somebody has ``kernel``; then by
    the executables that are there."""
    with _lock:
        if _registered.get(kernel.id) is kernel:
            return
        library = _handler()
        with contextlib.suppress(ValueError):  # one that has no use for it
            memory = ctypes.cast(library.jax_stitch_thread_memory, ctypes.c_void_p)
            ctypes.c_void_p.in_dll(kernel.library, "jax_stitch_thread_memory").value = memory.value
        id, address = kernel.id.encode(), ctypes.c_void_p(kernel.address)
        library.jax_stitch_register(id, address, ctypes.c_void_p(kernel.library._handle))
        weakref.finalize(kernel, library.jax_stitch_forget, id, address).atexit = False
        _registered[kernel.id] = kernel


@contextmanager
def held_by_program() -> Iterator[None]:
    """While a program is made that will hold the kernels it calls."""
    token = _held.set(True)
    try:
        yield
    finally:
        _held.reset(token)


def prepare(kernel: HostKernel, source: KernelSource, work: int | None, pooled: bool) -> dict[str, object]:
    """Registers a kernel; returns the attributes of a call to it.

    They name the kernel by its id, not its address, so that a program from a cache finds it too.
    """
    register(kernel)
    if not _held.get():
        _called[kernel.id] = kernel
    touched = sum(byte_size(t) for t in (*source.inputs, *source.outputs)) if work is None else work
    return {
        "kernel": kernel.id,
        "name": kernel.name,
        "phases": np.array(source.host_phases, np.int64),
        "bytes": np.int64(touched),
        "pooled": np.int64(pooled),
        "inputs": np.int64(len(source.inputs)),
        "outputs": np.int64(len(source.outputs) + len(source.scratch)),
    }


def weight(inputs: Sequence[jax.Array], attributes: Mapping[str, Any]) -> jax.Array | None:
    """One more input for an expensive kernel, that it does not read; None where it needs none.

    XLA:CPU runs a program in the thread that calls it where the program has next to no floating-point operations, and
    a custom call has none to it. As many as it takes come with this array. Else a call would not return before it is
    done, as those of ``jax.jit`` do, and its results would lie elsewhere: in the heap of the calling thread, which the
    C library gives back to the system and gets again, with a page fault for every 4 KB, more often than a pool
    thread's.
    """
    some = next((x for x in inputs if x.size), None)
    if some is None or attributes["bytes"] < _EXPENSIVE:
        return None
    element = jax.lax.slice(some, (0,) * some.ndim, (1,) * some.ndim).reshape(())
    is_set = jax.lax.ne(element, jax.lax.full_like(element, 0))  # `!=` would promote, which users can forbid
    return jnp.where(is_set, jnp.arange(2 * _XLA_EXPENSIVE, dtype=jnp.int32), 0)


def unread(instruction: Instruction) -> tuple[str, ...]:
    """The operands of an HLO instruction that the kernel it calls does not read: its weight, and what it waits for."""
    attributes = instruction.attributes
    if attributes.get("custom_call_target") != TARGET:
        return ()
    return instruction.operands[int(attributes["backend_config"]["inputs"]) :]


@functools.cache
def _handler() -> ctypes.CDLL:
    """The handler's library, registered with XLA."""
    library = native.library()
    library.jax_stitch_register.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    library.jax_stitch_forget.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.jax_stitch_register.restype = library.jax_stitch_forget.restype = None
    parts = {"type_id": library.jax_stitch_bound_id, "type_info": library.jax_stitch_bound_info}
    for part in parts.values():
        part.restype = ctypes.c_void_p
    bound = {name: jax.ffi.pycapsule(ctypes.c_void_p(part())) for name, part in parts.items()}
    jax.ffi.register_ffi_type(f"{TARGET}_bound", cast(Any, bound), platform="cpu")
    stages = {"instantiate": library.JaxStitchBind, "execute": library.JaxStitchLaunch}
    jax.ffi.register_ffi_target(TARGET, {n: jax.ffi.pycapsule(f) for n, f in stages.items()}, platform="cpu")
    return library
