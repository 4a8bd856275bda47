"""A program's kernels run by the interpreter, by the host's C++, and the program by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_parser.dtypes import ELEMENT_TYPES as DTYPES
from jax_stitch.emit import for_target, kernel_of
from jax_stitch.kernel.interpret import interpret
from jax_stitch.pipeline import Stitched, StitchedKernel


def interpreted(made: Stitched, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program whose kernels the interpreter runs."""

    def launch(kernel: StitchedKernel, arrays: Sequence[Any]) -> list[Any]:
        def run(*held: Any) -> list[np.ndarray]:
            scheduled = kernel.scheduled
            return interpret(for_target(scheduled, kernel_of(scheduled)), [np.asarray(a) for a in held])

        shapes = [jax.ShapeDtypeStruct(t.dims, DTYPES[t.dtype].numpy) for t in kernel.source.outputs]
        return list(jax.pure_callback(run, shapes, *arrays))

    return [np.asarray(r) for r in made.launched_by(launch)([jnp.asarray(a) for a in args])]


def assert_close(got: Sequence[np.ndarray], want: Sequence[Any], what: str) -> None:
    """As close as sums in another order, and functions of another library, may be."""
    for g, w in zip(got, map(np.asarray, want), strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), what
        if jnp.issubdtype(g.dtype, jnp.floating):
            tolerance = 2e-2 if g.dtype.itemsize == 2 else 2e-4
            a, b = g.astype(np.float64), w.astype(np.float64)
            scale = max(1.0, float(np.max(np.abs(b), initial=0, where=np.isfinite(b))))
            assert np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True), what
        else:
            assert np.array_equal(g, w), what


def flat(results: Any) -> list[np.ndarray]:
    return [np.asarray(r) for r in jax.tree.leaves(results)]
