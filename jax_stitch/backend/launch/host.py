"""Kernels on the CPU: one FFI handler, from the wheel or compiled once per machine, that finds kernels by id."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import jax

from jax_stitch.backend.compile.host import HostKernel
from jax_stitch.backend.launch import native

if TYPE_CHECKING:
    from hlo_parser import Instruction

TARGET = "jax_stitch_host_kernel"

_lock = threading.Lock()
_registered: weakref.WeakValueDictionary[str, HostKernel] = weakref.WeakValueDictionary()
"""The kernels that programs can call. One that neither a program nor an executable has any more is unloaded."""
_called: dict[str, HostKernel] = {}
"""Those that were called by themselves, and have no program to hold them: they stay."""
_held: ContextVar[bool] = ContextVar("jax_stitch_held_by_program", default=False)


def register(kernel: HostKernel) -> None:
    """Make a kernel callable by XLA programs of this process, by its id, as long as somebody has ``kernel``; then by
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
    """Make a program that is made meanwhile hold the kernels it calls."""
    token = _held.set(True)
    try:
        yield
    finally:
        _held.reset(token)


def hold(kernel: HostKernel) -> None:
    """Make a kernel callable by the program that is made now."""
    register(kernel)
    if not _held.get():
        _called[kernel.id] = kernel


def unread(instruction: Instruction) -> tuple[str, ...]:
    """Return the operands of an HLO instruction that the kernels it calls do not read: a weight, what they wait for."""
    attributes = instruction.attributes
    if attributes.get("custom_call_target") != TARGET:
        return ()
    return instruction.operands[int(attributes["backend_config"]["inputs"]) :]


@functools.cache
def _handler() -> ctypes.CDLL:
    """Return the handler's library, registered with XLA."""
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
