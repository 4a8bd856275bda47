"""Estimated registers of kernels whose life times can be told by hand; on compiled kernels see ``test_resources``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jax_stitch.fusion import explore
from jax_stitch.schedule import ScheduledKernel, registers, schedule
from tests.fusion import forced

H200 = forced.device("h200")
X = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)


def scheduled(function: Callable[..., Any], dtype: Any = jnp.float32) -> ScheduledKernel:
    plan = explore(forced.graph_of(function, jax.ShapeDtypeStruct(X.shape, dtype)), H200)
    (kernel,) = plan.kernels
    return schedule(plan.graph, kernel, H200, "kernel")


def centred(x: jax.Array) -> jax.Array:
    return x - x.mean(1, keepdims=True)


def twice(x: jax.Array) -> jax.Array:
    """Another value is kept over two reductions more."""
    y = jnp.exp(centred(x))
    z = y / y.sum(1, keepdims=True)
    return (z - (z * x).sum(1, keepdims=True)) * y


def test_values_kept_over_reductions_take_registers_each() -> None:
    one, more = scheduled(centred), scheduled(twice)
    kept = [sum(-(-s.size // p.split.lanes) for p in k.parts for s in p.own_storage.values()) for k in (one, more)]
    assert kept[1] > kept[0] > 0
    assert registers(more, H200) > registers(one, H200) >= kept[0]
    assert registers(more, H200) >= kept[1]


def test_what_is_dead_takes_none() -> None:
    """A chain of operations, each of which reads the one before, needs no more than a short one."""

    def chain(x: jax.Array, length: int) -> jax.Array:
        y = centred(x)
        for _ in range(length):
            y = jnp.tanh(y) * 0.5
        return y

    assert registers(scheduled(lambda x: chain(x, 12)), H200) == registers(scheduled(lambda x: chain(x, 3)), H200)


def test_what_lives_to_the_end_takes_one_each() -> None:
    """Values that are read again in the reverse of the order that they were made in."""

    def there_and_back(x: jax.Array, steps: int) -> jax.Array:
        values = [centred(x)]
        for _ in range(steps):
            values.append(jnp.tanh(values[-1]))
        found = values[-1]
        for v in reversed(values[:-1]):
            found = found * 0.5 + v
        return found

    few, many = (registers(scheduled(lambda x, n=n: there_and_back(x, n)), H200) for n in (30, 50))
    assert many == few + 20


def test_blocks_that_share_a_multiprocessor_bound_it() -> None:
    kernel = replace(scheduled(twice), together=2048 // scheduled(twice).threads)
    assert registers(kernel, H200) <= 32
