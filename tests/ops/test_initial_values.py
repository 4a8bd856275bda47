"""Reductions that start from any value: it counts once, however many lanes share a row.

JAX says that it has to be the neutral one; what XLA does with another is what one would expect, and so do kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch
from tests.fusion import forced

X = np.random.default_rng(0).integers(-3, 4, (32, 24))
ADD, MUL, MAX, MIN = (lax.add, np.add), (lax.mul, np.multiply), (lax.max, np.maximum), (lax.min, np.minimum)


def results(fun: Callable[[Any], Any], x: Any, device: str) -> list[np.ndarray]:
    """By kernels laid out for a device, from HLO as JAX writes it."""
    return forced.run(forced.stitched(forced.hlo_of(fun, x), forced.device(device)), [x])


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_array(axis: int, dtype: str, device: str) -> None:
    x = jnp.asarray(X % 3, dtype)  # Whole numbers that bfloat16 holds, and their sums.
    cases = [(ADD, 10), (ADD, 0), (MAX, 1), (MAX, 100), (MIN, 1), (MIN, 0)]
    starts = [np.asarray(jnp.asarray(start, dtype)) for _, start in cases]

    def fun(x: Any) -> Any:
        return [lax.reduce(x + x, s, combine, (axis,)) for ((combine, _), _), s in zip(cases, starts, strict=True)]

    for found, ((combine, numpy), start) in zip(results(fun, x, device), cases, strict=True):
        wanted = numpy.reduce(2 * (X % 3), axis=axis, initial=start)
        np.testing.assert_array_equal(found.astype(np.float64), wanted, f"{combine.__name__} from {start}")


@pytest.mark.parametrize("device", [None, "h200"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_one_array_of_optimized_hlo(dtype: str, device: str | None) -> None:
    """XLA for a CPU adds narrow floats in a wider type: the combiner is no single operation then, and each lane started
    from the initial value.
    """
    x, start = jnp.asarray(X % 3, dtype), np.asarray(jnp.asarray(10, dtype))

    def fun(x: Any) -> Any:
        return lax.reduce(x + x, start, lax.add, (1,)) * 2

    with forced.everything_pays():
        found = jax.jit(stitch(fun, schedule_device=device))(x)
    np.testing.assert_array_equal(np.asarray(found, np.float64), 2 * (2 * (X % 3).sum(1) + 10))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("starts", [(3, 1), (0, 1), (3, 0), (0, 0)])
def test_two_arrays(starts: tuple[int, int], device: str) -> None:
    """A sum beside a sum, a product or a largest value."""
    x = X.astype(np.float32)
    initial = tuple(np.float32(s) for s in starts)
    cases = (ADD, MUL, MAX)

    def two(x: Any, combine: Any) -> Any:
        return lax.reduce((x, x % 2), initial, lambda a, b: (a[0] + b[0], combine(a[1], b[1])), (1,))

    found = results(lambda x: [[r * 2 for r in two(x, combine)] for combine, _ in cases], x, device)
    for k, (_, numpy) in enumerate(cases):
        np.testing.assert_array_equal(found[2 * k], 2 * (X.sum(1) + starts[0]))
        np.testing.assert_array_equal(found[2 * k + 1], 2 * numpy.reduce(X % 2, axis=1, initial=starts[1]))


@pytest.mark.parametrize(("starts", "stitched"), [((0.0, 5.0), True), ((3.0, 5.0), False)])
def test_two_arrays_from_neutral_values_are_stitched(starts: tuple[float, float], stitched: bool) -> None:
    """What must count once is left to XLA; what need not is not."""
    initial = tuple(np.float32(s) for s in starts)

    def both(x: Any) -> Any:
        return lax.reduce((x, x), initial, lambda a, b: (a[0] + b[0], lax.max(a[1], b[1])), (1,))

    plan = forced.stitched(forced.hlo_of(both, X.astype(np.float32)), forced.device("cpu")).plan
    inside = {plan.graph[i].op for k in plan.kernels for p in k for i in p.nodes}
    assert ("reduce" in inside) is stitched
