"""The memory-bound suite in sub-word floats, with tiny, odd and empty arrays, and with more elements than 32 bits
number.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads import WORKLOADS
from jax_stitch.api import stitch, stitch_jit
from jax_stitch.backend.compile import compile_all
from jax_stitch.emit import KernelSource
from jax_stitch.inspect.report.accuracy import agreement, reference
from tests.fusion import forced

MICRO = tuple(w.name for w in WORKLOADS.values() if w.family in ("normalisation", "softmax", "loss", "statistics"))


def tiny(name: str) -> tuple[int, ...]:
    """A size of the workload with one element along most axes."""
    rank = len(WORKLOADS[name].size)
    return (1,) * (rank - 1) + ((2,) if "rope" in name else (1,))


def odd(name: str) -> tuple[int, ...]:
    """A size of the workload that divides nothing."""
    sizes = {2: (13, 34) if "rope" in name else (13, 35), 3: (5, 7, 3), 4: (3, 5, 7, 64 if "group" in name else 9)}
    return sizes[len(WORKLOADS[name].size)]


def assert_stitched_agrees(name: str, size: tuple[int, ...], dtype: Any, device: str | None) -> None:
    """To within twice the error of ``jax.jit`` from float64, and the same when run again."""
    function, args = WORKLOADS[name].make(size, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stitched = jax.jit(stitch(function, schedule_device=device)) if device else stitch_jit(function)
        got = stitched(*args)
    wrong = [
        str(leaf) for leaf in agreement(got, jax.jit(function)(*args), reference(function, args)) if not leaf.agrees
    ]
    assert not wrong, "\n".join(wrong)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(stitched(*args)), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


FAST = {("odd", "float16", "h200"), ("tiny", "bfloat16", None)}
CASES = [
    pytest.param(name, which, dtype, device, marks=[pytest.mark.slow] * ((which, dtype, device) not in FAST))
    for name in MICRO
    for which in ("tiny", "odd")
    for dtype in ("float16", "bfloat16")
    for device in ("h200", None)
]


@pytest.mark.parametrize(("name", "which", "dtype", "device"), CASES)
def test_sub_word_floats_at_tiny_and_odd_sizes(name: str, which: str, dtype: str, device: str | None) -> None:
    assert_stitched_agrees(name, tiny(name) if which == "tiny" else odd(name), jnp.dtype(dtype), device)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (0,)], ids=str)
def test_empty_arrays_and_single_elements(shape: tuple[int, ...]) -> None:
    """Beside values that are stitched, and with a reduction of nothing at all."""

    def function(x: jax.Array, y: jax.Array) -> Any:
        z = jax.nn.softmax(y * 2, -1)
        return jnp.exp(x).sum(-1), jnp.cumsum(x, -1) + 1, x.sum(), jax.nn.softmax(x.T, 0), z / z.max()

    x, y = jnp.ones(shape, jnp.float32), jnp.arange(12.0).reshape(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        got = stitch_jit(function)(x, y)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(function)(x, y)), strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-6)


def soft(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1)


def accumulated(x: jax.Array) -> jax.Array:
    return jax.lax.cumsum(x, 1, reverse=True)


def sums(x: jax.Array) -> jax.Array:
    return (x * 2).sum(-1)


WIDE = (2**21 + 3, 1024)
"""2 GiB of elements and a few rows."""


@pytest.mark.parametrize("function", [soft, accumulated, sums], ids=lambda f: f.__name__)
@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_more_elements_than_32_bits_number(function: Any, device: str) -> None:
    """The last rows are right, computed by the last blocks alone; memory that nobody touches takes none."""
    made = forced.stitched(forced.hlo_of(function, jax.ShapeDtypeStruct(WIDE, jnp.bfloat16)), forced.device(device))
    (kernel,) = made.kernels
    assert "using index = int64_t;" in kernel.source.text
    small = forced.stitched(forced.hlo_of(function, jax.ShapeDtypeStruct((64, 1024), jnp.bfloat16)), made.device)
    assert "int64_t;" not in small.kernels[0].source.text
    rows = 3
    values = np.random.default_rng(0).standard_normal((rows, WIDE[1])).astype(jnp.bfloat16)
    x = np.zeros(WIDE, jnp.bfloat16)  # zero pages: none is there before it is written
    x[-rows:] = values
    got = _last_blocks(kernel.source, x)
    want = np.asarray(jax.jit(function)(jnp.asarray(values)), np.float32)
    np.testing.assert_allclose(got[-rows:].astype(np.float32), want, rtol=0.02, atol=0.02 * np.abs(want).max())


def _last_blocks(source: KernelSource, x: np.ndarray) -> np.ndarray:
    """The result of a kernel of one phase, whose last two blocks alone are run."""
    (compiled,) = compile_all([source], "host")
    (out,) = (np.zeros(t.dims, jnp.bfloat16) for t in source.outputs)
    buffers = (ctypes.c_void_p * 3)(x.ctypes.data, out.ctypes.data)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(compiled.address)
    run(ctypes.addressof(buffers), source.grid - 2, source.grid)
    return out
