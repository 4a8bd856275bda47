"""Random bits of XLA's own generator: XLA expands ``rng-bit-generator``, and the expansion is part of kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices, stitch, stitch_jit
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.graph import TensorType
from tests.fusion import forced


def slow(values: Sequence[Any]) -> list[Any]:
    return [pytest.param(v, marks=pytest.mark.slow) for v in values]


IMPLEMENTATIONS = ("rbg", "unsafe_rbg")


def bits(key, x):
    return jax.random.bits(key, x.shape) >> 9


def uniform(key, x):
    return jax.random.uniform(key, x.shape) * x


def normal(key, x):
    return x + jax.random.normal(key, x.shape)


def dropout(key, x):
    """A mask, and what is kept, normalised by row."""
    kept = jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)
    return kept / (1 + jnp.abs(kept).max(-1, keepdims=True))


def split(key, x):
    """Keys of keys, which ``unsafe_rbg`` makes by the generator as well."""
    first, second = jax.random.split(key)
    return jax.random.uniform(first, x.shape) + jax.random.normal(jax.random.fold_in(second, 3), x.shape)


FUNCTIONS = (bits, uniform, normal, dropout, split)
X = jnp.asarray(np.random.default_rng(0).standard_normal((33, 70)), jnp.float32)


@functools.cache
def wanted(function: Any, implementation: str, data: bytes) -> Any:
    words = np.frombuffer(data, np.uint32)
    return jax.jit(lambda words, x: function(jax.random.wrap_key_data(words, impl=implementation), x))(words, X)


def agrees(function: Any, got: Any, key: Any) -> bool:
    """Bits are bits; what is calculated from them rounds as XLA's kernels do, or in the last place not."""
    want = wanted(function, str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key)).tobytes())
    if function is bits:
        return np.array_equal(got, want)
    return np.allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("implementation", [IMPLEMENTATIONS[0], *slow(IMPLEMENTATIONS[1:])])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_bits_are_XLAs(function: Any, implementation: str) -> None:
    """On the CPU, and the kernels for an H200 on the host: a round of the generator, or a counter, that is another."""
    key = jax.random.key(7, impl=implementation)
    assert agrees(function, stitch_jit(function)(key, X), key)
    assert agrees(function, jax.jit(stitch(function, schedule_device="h200"))(key, X), key)


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_they_are_in_kernels(function: Any) -> None:
    """All of XLA's HLO for an H200, whose bits are those of the CPU; without findings."""
    data = jnp.arange(1, 5, dtype=jnp.uint32)

    def wrapped(data, x):
        return function(jax.random.wrap_key_data(data, impl="rbg"), x)

    target = devices.get("h200")
    text = capture(wrapped, (data, X), target).text
    assert " rng-bit-generator(" not in text
    stitched = forced.stitched(text, target)
    taken = {i for kernel in stitched.plan.kernels for p in kernel for i in p.nodes | p.copies}
    large = [n for n in stitched.plan.graph.nodes if isinstance(n.type, TensorType) and n.type.size > 64]
    assert large and all(n.id in taken or n.op in ("parameter", "constant", "iota") for n in large)
    with jax.enable_x64(True):  # The generator's state, between kernels.
        checked = check_function(stitched, [data, X])
    assert checked.launches and not checked.faulty, str(checked)
    assert agrees(function, checked.results[0], jax.random.wrap_key_data(data, impl="rbg"))


def test_a_mask_costs_no_launch() -> None:
    data = jax.ShapeDtypeStruct((4,), jnp.uint32)
    x = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    plan = stitch_jit(lambda data, x: dropout(jax.random.wrap_key_data(data, impl="rbg"), x)).plan(
        data, x, device="h200"
    )
    assert plan.launches == 1 < plan.xla_launches


@pytest.mark.parametrize("algorithm", list(lax.RandomAlgorithm), ids=lambda a: a.name.lower())
@pytest.mark.parametrize("dtype", ["uint8", *slow(["uint16", "uint32"]), "uint64"])
def test_every_algorithm_and_width(algorithm: Any, dtype: str) -> None:
    """The generator itself: its new state, and bits of less and more than a word."""
    with jax.enable_x64(True):
        state = jnp.arange(3, 5, dtype=jnp.uint64)

        def function(state):
            after, found = lax.rng_bit_generator(state, (5, 13), jnp.dtype(dtype), algorithm)
            return after, found ^ jnp.ones((), dtype)

        want = jax.jit(function)(state)
        for got in (stitch_jit(function)(state), jax.jit(stitch(function, schedule_device="h200"))(state)):
            for ours, theirs in zip(got, want, strict=True):
                np.testing.assert_array_equal(ours, theirs)
