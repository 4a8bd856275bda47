"""A stitched function with every kernel in the checking mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jax_stitch.backend.launch import SENTINEL
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.checking.check import check
from jax_stitch.checking.findings import Finding, Findings, Kind

if TYPE_CHECKING:
    from jax_stitch.graph.model import TensorType
    from jax_stitch.pipeline import Stitched, StitchedKernel


@dataclass(frozen=True, slots=True)
class CheckedFunction:
    """What a call of a function showed: the findings of each launch, in their order, and the results."""

    launches: tuple[Findings, ...]
    results: tuple[np.ndarray, ...] = field(repr=False)

    @property
    def faulty(self) -> tuple[Findings, ...]:
        """Return the launches with findings."""
        return tuple(f for f in self.launches if f)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return all that makes results wrong: not the bank conflicts, which only take time."""
        return tuple(f for launch in self.launches for f in launch.faults if f.kind is not Kind.BANK_CONFLICT)

    @property
    def bytes_moved(self) -> int:
        """Return the bytes that its kernels move; what XLA's own operations between them move is not in it."""
        return sum(f.bytes_moved for f in self.launches)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faulty or self.launches))


def check_function(stitched: Stitched, arguments: Sequence[Any]) -> CheckedFunction:
    """Run a planned function on arrays, its kernels in the checking mode with the launch dimensions they were scheduled
    with, and everything else as JAX runs it.

    A kernel in a loop is checked at each trip.
    """
    launches: list[Findings] = []

    def on_host(kernel: StitchedKernel, arrays: Sequence[Any]) -> list[np.ndarray]:
        source = kernel.source
        if source.grid == 0 or all(t.size == 0 for t in source.outputs):
            return [np.zeros(s.shape, s.dtype) for s in (*map(_shape, source.outputs), SENTINEL)]
        checked = check(source, [np.asarray(a) for a in arrays])
        launches.append(checked.findings)
        return [*checked.outputs, np.zeros(SENTINEL.shape, SENTINEL.dtype)]

    def launch(kernel: StitchedKernel, arrays: Sequence[Any]) -> Sequence[Any]:
        shapes = [*map(_shape, kernel.source.outputs), SENTINEL]
        return list(jax.pure_callback(lambda *a: on_host(kernel, a), shapes, *arrays))[:-1]

    results = [np.asarray(r) for r in jax.jit(stitched.launched_by(launch))(list(arguments))]
    return CheckedFunction(tuple(launches), tuple(results))


def _shape(tensor: TensorType) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tensor.dims, numpy_dtype(tensor))
