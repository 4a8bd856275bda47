"""Kernels on an attached GPU without XLA, by CuPy (``devices/attached/``): to test them, to time them, to ask how many
fit.

A candidate's kernel is timed a millisecond after it is compiled; a program of XLA's around it takes a hundred. Results
are the bits that the same kernel gives under XLA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.backend.compile.ptx import PtxKernel
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import attached

if TYPE_CHECKING:
    from jax_stitch.emit.source import KernelSource
    from jax_stitch.graph.model import TensorType


def is_possible() -> bool:
    """Return whether this process has a GPU that JAX uses, and CuPy."""
    return jax.default_backend() == "gpu" and attached.is_usable()


@dataclass(frozen=True, slots=True)
class Direct:
    """A kernel loaded for the current GPU."""

    source: KernelSource
    function: attached.Function

    @classmethod
    def of(cls, kernel: PtxKernel, source: KernelSource) -> Direct:
        """Raise ``CupyMissing``, and what CuPy raises where the driver does not take the kernel."""
        launch = source.grid, source.block, source.shared_bytes, source.waits, source.cluster
        return cls(source, attached.load(kernel.ptx, kernel.name, *launch))

    def __call__(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """Return the kernel's outputs for arrays of its inputs' types."""
        inputs, outputs, rest = self._buffers(arrays)
        self.function.launch(_pointers(*inputs, *outputs, *rest))
        attached.cupy().cuda.get_current_stream().synchronize()
        return tuple(_to_jax(made, t) for made, t in zip(outputs, self.source.outputs, strict=True))

    def seconds(self, arrays: Sequence[jax.Array], seconds: float, *, cold: bool = True) -> float:
        """Return the least that a launch takes, by events, among rounds for about ``seconds``."""
        inputs, outputs, rest = self._buffers(arrays)
        pointers = _pointers(*inputs, *outputs, *rest)
        least = min(attached.elapsed(lambda: self.function.launch(pointers), seconds, cold=cold))
        del inputs, outputs, rest
        attached.cupy().get_default_memory_pool().free_all_blocks()  # It is JAX's to use.
        return least

    def _buffers(self, arrays: Sequence[jax.Array]) -> tuple[list[Any], list[Any], list[Any]]:
        """Return CuPy arrays: on the memory of ``arrays``, and new ones for the outputs and for what else the
        kernel uses.
        """
        cupy = attached.cupy()
        inputs = [cupy.from_dlpack(_plain(array)) for array in jax.block_until_ready(list(arrays))]
        outputs, rest = ([cupy.empty(t.dims, _plain_dtype(numpy_dtype(t))) for t in of] for of in self._made())
        if self.source.phases:
            rest.append(cupy.empty(1, np.uint64))  # Where blocks meet: of any content.
        return inputs, outputs, rest

    def _made(self) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
        return self.source.outputs, self.source.scratch


def _pointers(*arrays: Any) -> list[int]:
    return [int(array.data.ptr) for array in arrays]


def _plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type that every version of DLPack has: truth values and short floats as integers."""
    return dtype if dtype.kind in "iuf" and dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def _plain(array: jax.Array) -> jax.Array:
    plain = _plain_dtype(array.dtype)
    if plain == array.dtype:
        return array
    if array.dtype == np.bool_:
        return array.astype(plain)
    return jax.lax.bitcast_convert_type(array, plain)


def _to_jax(array: Any, tensor: TensorType) -> jax.Array:
    wanted = numpy_dtype(tensor)
    with jax.enable_x64(True):  # else 64-bit types would be narrowed
        imported: jax.Array = jnp.from_dlpack(array)
        if imported.dtype == wanted:
            return imported
        return imported.astype(wanted) if wanted == np.bool_ else jax.lax.bitcast_convert_type(imported, wanted)
