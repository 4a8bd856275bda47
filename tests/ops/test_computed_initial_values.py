"""Reductions that start from what is computed: from an argument, from another reduction, from what a loop carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch_jit
from tests.fusion import forced

FEW = jnp.asarray([4, 1, 2, 3, 1])
STARTS: dict[str, Callable[[Any, Any], Any]] = {
    "an argument": lambda x, few: few.reshape(5)[4],
    "one computed": lambda x, few: few[0] * 2 + few[1],
    "another's sum": lambda x, few: few.sum().astype(few.dtype) * 2,
    "its own array's largest": lambda x, few: x.max(),
}
KINDS = {"add": lax.add, "max": lax.max, "min": lax.min}


def _argmax(x: Any, few: Any) -> Any:
    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return lax.reduce((x + x, places), (few.sum() * 1.0 - 8, few[1].astype(jnp.int32)), larger, (1,))


def _several(x: Any, few: Any) -> Any:
    def both(a: Any, b: Any) -> Any:
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    return lax.reduce((x + x, x * x), (few[0] * 2, few.sum()), both, (1,))


def _counting(x: Any, few: Any) -> Any:
    def step(k: Any, c: Any) -> Any:
        return c - lax.reduce(c, few[0] + k.astype(c.dtype), lax.max, (1,))[:, None]

    return lax.fori_loop(0, 5, step, x)


def _carrying(x: Any, few: Any) -> Any:
    def step(k: Any, c: Any) -> Any:
        rows, sums = c
        sums = lax.reduce(rows, sums[0] + 1, lax.max, (0,))
        return rows - sums, sums

    return lax.fori_loop(0, 5, step, (x, jnp.zeros(x.shape[1], x.dtype) + few[0]))


def _constant(x: Any, few: Any) -> Any:
    def step(k: Any, c: Any) -> Any:
        return c - lax.reduce(c, few[0] * 3, lax.max, (1,))[:, None]

    return lax.fori_loop(0, 5, step, x)


def arguments(rows: int, columns: int, dtype: str = "float32") -> tuple[Any, Any]:
    x = np.random.default_rng(0).integers(0, 4, (rows, columns))
    return jnp.asarray(x, dtype), FEW.astype(dtype)


def assert_same(found: Any, wanted: Any) -> None:
    for f, w in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_array_equal(np.asarray(f, np.float64), np.asarray(w, np.float64))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("start", STARTS)
def test_kernels_of_every_axis(start: str, device: str) -> None:
    """Catches kernels that were refused for reading their initial value ("a fault of JAX Stitch"), or that read it
    before it is there.
    """

    def fun(x: Any, few: Any) -> Any:
        first = STARTS[start](x, few)
        return [lax.reduce(x + x, first, kind, axes) for kind in KINDS.values() for axes in ((0,), (1,), (0, 1))]

    args = arguments(32, 24)
    stitched = forced.stitched(forced.hlo_of(fun, *args), forced.device(device))
    assert stitched.kernels
    assert_same(forced.run(stitched, list(args)), jax.jit(fun)(*args))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint16", "float16", "bfloat16"])
def test_other_types(dtype: str, device: str) -> None:
    """Catches an initial value in another type than the sum's."""

    def fun(x: Any, few: Any) -> Any:
        return [lax.reduce(x + x, few[0] * 2, kind, (1,)) for kind in KINDS.values()]

    args = arguments(16, 10, dtype)
    stitched = forced.stitched(forced.hlo_of(fun, *args), forced.device(device))
    assert_same(forced.run(stitched, list(args)), jax.jit(fun)(*args))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("fun", [_argmax, _several])
def test_several_results(fun: Callable[..., Any], device: str) -> None:
    """Catches lanes that each start from an initial value that is computed."""
    args = arguments(32, 24)
    stitched = forced.stitched(forced.hlo_of(fun, *args), forced.device(device))
    assert_same(forced.run(stitched, list(args)), jax.jit(fun)(*args))


@pytest.mark.parametrize("shape", [(8, 16), (64, 1000), (1, 5000)])
@pytest.mark.parametrize("name", ["sum", "argmax", "constant", "counting", "carrying"])
def test_without_an_error_of_ours(name: str, shape: tuple[int, int]) -> None:
    """Catches internal errors, small and large, also in loops."""
    funs: dict[str, Callable[[Any, Any], Any]] = {
        "sum": lambda x, few: lax.reduce(x + x, few.sum() * 2, lax.add, (1,)),
        "argmax": _argmax,
        "constant": _constant,
        "counting": _counting,
        "carrying": _carrying,
    }
    args = arguments(*shape)
    assert_same(stitch_jit(funs[name], mode="now", strict=True)(*args), jax.jit(funs[name])(*args))


def test_a_kernel_on_a_gpu() -> None:
    """Catches the note that a kernel is at fault, where it loads what its reduction starts from."""

    def fun(x: Any, few: Any) -> Any:
        return lax.reduce(jnp.tanh(x), few.sum() * 2, lax.add, (1,))

    plan = stitch_jit(fun).plan(*arguments(64, 1000), device="h200")
    assert len(plan.kernels) == 1 and plan.launches == 1 and not plan.notes
