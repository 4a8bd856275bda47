"""Reductions that take the first or last of several elements: the same one as XLA, which goes through them in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.fusion import forced

Combiner = Callable[[Any, Any], Any]


def first_not_zero(a: Any, b: Any) -> Any:
    return jnp.where(a != 0, a, b)


def last_not_zero(a: Any, b: Any) -> Any:
    return jnp.where(b != 0, b, a)


def farther_from_zero(a: Any, b: Any) -> Any:
    """Of one and minus one, whichever comes first."""
    return jnp.where(jnp.abs(a) >= jnp.abs(b), a, b)


def larger_or_first(a: Any, b: Any) -> Any:
    is_left = a[0] >= b[0]
    return lax.select(is_left, a[0], b[0]), lax.select(is_left, a[1], b[1])


def larger_or_smaller_number(a: Any, b: Any) -> Any:
    """As ``jnp.argmax`` has it, less its NaNs."""
    is_left = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return lax.select(is_left, a[0], b[0]), lax.select(is_left, a[1], b[1])


def softmax_so_far(a: Any, b: Any) -> Any:
    """A maximum, and the sum of exponentials less it."""
    largest = jnp.maximum(a[0], b[0])
    return largest, a[1] * jnp.exp(a[0] - largest) + b[1] * jnp.exp(b[0] - largest)


def sums_and_both(a: Any, b: Any) -> Any:
    return a[0] + b[0], jnp.minimum(a[1], b[1])


def reduced(combiner: Combiner, dims: tuple[int, ...]) -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        zeros = tuple(np.zeros((), v.dtype) for v in values)
        given = (values, zeros) if len(values) > 1 else (values[0], zeros[0])
        return jax.tree.leaves(lax.reduce(*given, combiner, dims))

    return function


def has_reduction(made: Any) -> bool:
    nodes = [i for k in made.kernels for p in k.scheduled.parts for i in p.pattern.nodes]
    return any(made.plan.graph[i].op == "reduce" for i in nodes)


@pytest.mark.parametrize("dims", [(1, 2, 0), (0,), (2,)])
@pytest.mark.parametrize(
    ("combiner", "dtype"),
    [
        *((combiner, dtype) for combiner in (first_not_zero, last_not_zero) for dtype in (np.float32, np.int32)),
        (farther_from_zero, np.float32),
        *((larger_or_first, dtype) for dtype in (np.float32, np.int32, np.bool_)),
    ],
)
def test_the_order_counts(combiner: Combiner, dtype: Any, dims: tuple[int, ...]) -> None:
    """Catches: the first in the order in which lanes meet."""
    rng = np.random.default_rng(0)
    arrays = 2 if combiner is larger_or_first else 1
    values = [(rng.integers(-1, 3, (9, 5, 70)) * (rng.random((9, 5, 70)) < 0.2)).astype(dtype) for _ in range(arrays)]
    function = reduced(combiner, dims)
    for target in ("cpu", "h200"):
        made = forced.stitched(forced.hlo_of(function, *values), forced.device(target))
        assert not has_reduction(made)
        for got, want in zip(forced.run(made, values), jax.jit(function)(*values), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("combiner", [larger_or_smaller_number, softmax_so_far, sums_and_both])
def test_where_it_does_not_count_there_is_a_kernel(combiner: Combiner) -> None:
    """Catches: every combiner of several arrays left to XLA."""
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 3, (40, 700)).astype(np.float32) for _ in range(2)]
    function = reduced(combiner, (1,))
    made = forced.stitched(forced.hlo_of(function, *values), forced.device("cpu"))
    assert has_reduction(made)
    for got, want in zip(forced.run(made, values), jax.jit(function)(*values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
