"""Kernel source to something that can be launched: PTX for a GPU, a loaded shared object for the CPU; cached on
disk."""

from jax_stitch.backend.compile.errors import (
    CompilerMissing,
    CompilerTimeout,
    CompilerTrouble,
    KernelCompileError,
    NoRoom,
    NvrtcMissing,
)
from jax_stitch.backend.compile.host import HostKernel, compile_host, load_host
from jax_stitch.backend.compile.occupancy import Occupancy, occupancy, resident_blocks
from jax_stitch.backend.compile.parallel import Kernel, compile_all, compile_kernel, target_of
from jax_stitch.backend.compile.ptx import PtxKernel, compile_ptx

__all__ = [
    "CompilerMissing",
    "CompilerTimeout",
    "CompilerTrouble",
    "HostKernel",
    "Kernel",
    "KernelCompileError",
    "NoRoom",
    "NvrtcMissing",
    "Occupancy",
    "PtxKernel",
    "compile_all",
    "compile_host",
    "compile_kernel",
    "compile_ptx",
    "load_host",
    "occupancy",
    "resident_blocks",
    "target_of",
]
