"""Loops whose whole body is one kernel: XLA must not take the kernel for something that each iteration repeats.

XLA's loop passes read the operands of a body's root as the next carry, also where the root is a custom call
(``backend/launch/kernel_call.py``). Without the result that keeps a kernel from being the root, these loops end at once
with the values of one iteration, or never.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import devices, stitch, stitch_jit
from jax_stitch.checking import check_function
from tests.fusion import forced

DEVICES = ("cpu", "h200")


def euclid(carry: Any) -> Any:
    a, b = carry[:2]
    rest = jnp.where(b != 0, lax.rem(a, jnp.where(b != 0, b, 1)), 0)
    return (jnp.where(b != 0, b, a), rest, *(c + rest for c in carry[2:]))


def rotate(carry: Any) -> Any:
    return (jnp.maximum(carry[0], 1) - 1, *(c * 2 + d for c, d in zip(carry[1:], carry, strict=False)))


def undone(carry: Any) -> Any:
    return (carry[1] != 0).any()


def positive(carry: Any) -> Any:
    return (carry[0] > 0).any()


LOOPS = {
    "two carries": (undone, euclid, 2),
    "three carries": (undone, euclid, 3),
    "two that are counted down": (positive, rotate, 2),
    "five that are counted down": (positive, rotate, 5),
}


def arguments(count: int, dtype: Any = jnp.int32, shape: tuple[int, ...] = (16, 4)) -> list[jax.Array]:
    size = int(np.prod(shape))
    return [(jnp.arange(size) % (7 + k)).astype(dtype).reshape(shape) for k in range(count)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32, jnp.uint16])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_inside_a_stitched_function(name: str, dtype: Any, device: str) -> None:
    condition, body, count = LOOPS[name]

    def f(*carry: jax.Array) -> Any:
        return lax.while_loop(condition, lambda c: tuple(x.astype(dtype) for x in body(c)), carry)

    check(f, stitched(f, device), arguments(count, dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LOOPS)
def test_a_stitched_body_of_a_loop_of_the_user(name: str, device: str) -> None:
    condition, body, count = LOOPS[name]
    inner = stitch(lambda *c: body(c), schedule_device=None if device == "cpu" else device)

    def loop(step: Any) -> Any:
        return jax.jit(lambda *carry: lax.while_loop(condition, lambda c: tuple(step(*c)), carry))

    with forced.everything_pays(0):
        check(lambda *c: loop(lambda *c: body(c))(*c), loop(inner), arguments(count))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("of", [jnp.gcd, jnp.lcm, jax.vmap(jnp.gcd), jax.vmap(jnp.gcd, in_axes=(None, 0))])
def test_greatest_common_divisors(of: Any, device: str) -> None:
    check(of, stitched(of, device), [x + 1 for x in arguments(2)])


@pytest.mark.parametrize("device", DEVICES)
def test_a_scan_of_the_user_over_a_stitched_body(device: str) -> None:
    inner = stitch(lambda a, b: (a + b, a - b), schedule_device=None if device == "cpu" else device)

    def f(step: Any) -> Any:
        return jax.jit(lambda a, b: lax.scan(lambda c, _: (step(*c), None), (a, b), length=9)[0])

    check(f(lambda a, b: (a + b, a - b)), f(inner), arguments(2, jnp.float32))


def stitched(f: Any, device: str) -> Any:
    return stitch_jit(f) if device == "cpu" else jax.jit(stitch(f, schedule_device=device))


def check(plain: Any, ours: Any, args: list[jax.Array]) -> None:
    want, got = jax.tree.leaves(plain(*args)), jax.tree.leaves(ours(*args))
    for w, g in zip(want, got, strict=True):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_the_checking_mode_runs_each_step() -> None:
    """A loop whose body is one call of Python, which is a custom call as well."""
    args = [x + 1 for x in arguments(2)]
    kernels = forced.stitched(forced.hlo_of(jnp.gcd, *args), devices.get("h200"), 0)
    found = check_function(kernels, args)
    assert not found.errors
    np.testing.assert_array_equal(found.results[0], np.gcd(*map(np.asarray, args)))
