"""Results in the memory of inputs that nobody reads afterwards: which, and that nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.pipeline import Stitched
from tests.explore import forced

Function = Callable[..., Any]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Memory that belongs to nobody else: a library call's result."""
    return a @ b


def softmax(a, b):
    return jax.nn.softmax(product(a, b), -1)


def updated(a, b):
    return b - 0.1 * jnp.tanh(product(a, b)) * jnp.sin(a)


def read_again(a, b):
    p = product(a, b)
    return jnp.tanh(p) * 2.0 + a, product(p, b)


def returned(a, b):
    p = product(a, b)
    return jnp.tanh(p) * 2.0 + a, p


def turned(a, b):
    p = product(a, b)
    return jnp.tanh(p.T) * jnp.sin(a) + p


def shifted(a, b):
    p = product(a, b)
    return jnp.tanh(jnp.roll(p, 1, 0)) * jnp.sin(a) + p


def in_another_row(a, b):
    p = product(a, b)
    return jnp.tanh(p) * jnp.sin(p[:1]) + jnp.cos(a)


def of_parameters(a, b):
    return jnp.tanh(a) * jnp.sin(b) + jnp.cos(a)


def of_another_type(a, b):
    return (jnp.tanh(product(a, b)) * jnp.sin(a)).astype(jnp.bfloat16)


def read_by_two_kernels(a, b):
    p = product(a, b)
    first = jnp.tanh(p) * jnp.sin(a)
    return product(first, b), jnp.tanh(product(first, a)) * jnp.sin(p)


IN_PLACE = [softmax, updated]
APART = [
    *(read_again, returned, turned, shifted, in_another_row, of_parameters, of_another_type),
    read_by_two_kernels,
]


def stitched(function: Function, device: str, n: int = 96) -> tuple[Stitched, list[Any]]:
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal((n, n)), jnp.float32) for _ in range(2)]
    return forced.stitched(forced.hlo_of(function, *args), forced.device(device)), args


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("function", [*IN_PLACE, *APART], ids=lambda f: f.__name__)
def test_only_what_dies_where_it_is_read_is_written_over(function: Function, device: str) -> None:
    """Memory written over that is read later, by another thread, another kernel or the caller; or never any."""
    found, args = stitched(function, device)
    assert found.kernels
    written = [o for k in found.kernels for o in k.scheduled.in_place]
    wanted = jax.jit(function)(*args)
    got = jax.jit(found.compile("host"))(args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=2e-2, atol=1e-4)
    if function in IN_PLACE:
        assert written
    elif function is not read_by_two_kernels:
        assert not written


@pytest.mark.parametrize("function", IN_PLACE, ids=lambda f: f.__name__)
def test_xla_gives_both_the_same_memory_without_a_copy(function: Function) -> None:
    found, args = stitched(function, "cpu")
    compiled = jax.jit(found.compile("host")).lower(args).compile()
    text = compiled.as_text()
    assert text is not None and "output_to_operand_aliasing" in text
    assert not [line for line in text.splitlines() if " copy(" in line]


def test_a_chain_of_updates_in_a_loop() -> None:
    """A carried value written over while an earlier step's is still needed."""

    def steps(a, b):
        def body(_, x):
            y = jnp.tanh(product(a, x)) * 0.5 + jnp.sin(b)
            return jnp.tanh(product(b, y)) * 0.5 + x

        return lax.fori_loop(0, 3, body, a)

    found, args = stitched(steps, "cpu", 160)
    (got,) = jax.jit(found.compile("host"))(args)
    np.testing.assert_allclose(got, jax.jit(steps)(*args), rtol=1e-4, atol=1e-5)


def test_rows_of_several_lanes_keep_their_row_values_apart() -> None:
    """A value of a row that all lanes read and one writes."""

    def rows(a, b):
        p = product(a, b[:, 0])
        return a / jnp.exp(p)[:, None], jnp.exp(p) * 2.0 + jnp.sum(a, -1)

    for device in ("cpu", "h200"):
        found, args = stitched(rows, device)
        got = jax.jit(found.compile("host"))(args)
        for a, b in zip(got, jax.jit(rows)(*args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        for kernel in found.kernels:
            for part in kernel.scheduled.parts:
                if part.split.lanes > 1:
                    assert not set(kernel.scheduled.in_place) & {
                        i for i in part.updates if len(kernel.scheduled.graph[i].tensor.dims) == 1
                    }
