"""A kernel in the GPU's memory, launched on pointers: no program of XLA's has to be compiled around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from jax_stitch.devices.attached.provided import cupy

_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
"""Of ``CUfunction_attribute`` (``cuda.h``)."""
_PORTABLE_CLUSTER = 8


class Function(Struct, frozen=True):
    """A loaded kernel with its launch. Clusters are in its code (``__cluster_dims__``), as under XLA."""

    handle: Any
    """CuPy's ``Function``, which holds the module."""
    grid: int
    block: int
    shared_bytes: int
    waits: bool
    """Whether its blocks wait for each other: then the driver starts all of them or raises."""

    def launch(self, pointers: Sequence[int]) -> None:
        """Launch on CuPy's current stream; return before it is done."""
        arguments = tuple(np.uint64(pointer) for pointer in pointers)
        grid, block = (self.grid, 1, 1), (self.block, 1, 1)
        more = {"enable_cooperative_groups": True} if self.waits else {}
        self.handle(grid, block, arguments, shared_mem=self.shared_bytes, **more)

    def blocks_per_multiprocessor(self) -> int:
        """Return how many the driver puts on one at a time, as it counts itself."""
        counted = cupy().cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        return int(counted(self.handle.ptr, self.block, self.shared_bytes))


def load(code: str | bytes, name: str, grid: int, block: int, shared_bytes: int, waits: bool, cluster: int) -> Function:
    """Return a kernel from its PTX or machine code, ready to launch on CuPy's current device.

    Raises ``CupyMissing``, and what CuPy raises where the driver does not take the code.
    """
    cuda = cupy().cuda
    module = cuda.Module()
    module.load(code.encode() if isinstance(code, str) else code)
    handle = module.get_function(name)
    if shared_bytes:
        cuda.driver.funcSetAttribute(handle.ptr, _MAX_DYNAMIC_SHARED, shared_bytes)
    if cluster > _PORTABLE_CLUSTER:
        cuda.driver.funcSetAttribute(handle.ptr, _NON_PORTABLE_CLUSTER, 1)
    return Function(handle, grid, block, shared_bytes, waits)
