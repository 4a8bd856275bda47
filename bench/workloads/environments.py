"""The Cart-pole study (Snider and Liang) in all its variants, and other loops over independent rows.

A batch of environments runs in a ``scan``; one that ends is reset. The variants differ in where random numbers come
from (a pool drawn before, or the loop itself), in how the state is handed on (four arrays, or one concatenated), and in
how often the loop is unrolled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from bench.workloads import loop_programs
from bench.workloads.base import Function, Size, Workload, normal

Made = tuple[Function, tuple[Any, ...]]
State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

GRAVITY, CART, POLE, HALF_LENGTH, PUSH, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
EDGE, TILT = 2.4, 0.2094
"""Where an episode ends: metres from the middle, radians from upright."""


def advanced(state: State, action: jax.Array) -> tuple[State, jax.Array]:
    """The state one step of 20 ms later, and whether the episode is over; ``action`` is positive to push right."""
    x, v, angle, spin = state
    force = jnp.where(action > 0, PUSH, -PUSH).astype(x.dtype)
    c, s = jnp.cos(angle), jnp.sin(angle)
    pull = (force + POLE * HALF_LENGTH * spin * spin * s) / (CART + POLE)
    turn = (GRAVITY * s - c * pull) / (HALF_LENGTH * (4 / 3 - POLE * c * c / (CART + POLE)))
    gain = pull - POLE * HALF_LENGTH * turn * c / (CART + POLE)
    x, v, angle, spin = x + TAU * v, v + TAU * gain, angle + TAU * spin, spin + TAU * turn
    return (x, v, angle, spin), (jnp.abs(x) > EDGE) | (jnp.abs(angle) > TILT)


def _separate(state: State, action: jax.Array, start: jax.Array) -> tuple[State, tuple[jax.Array, jax.Array]]:
    after, over = advanced(state, action)
    x, v, angle, spin = (jnp.where(over, s, a) for s, a in zip(start, after, strict=True))
    return (x, v, angle, spin), (jnp.where(over, 0, 1).astype(action.dtype), over)


def _concatenated(state: jax.Array, action: jax.Array, start: jax.Array) -> tuple[jax.Array, Any]:
    """``state`` is [batch, 4]."""
    x, v, angle, spin = state.T
    after, over = advanced((x, v, angle, spin), action)
    whole = jnp.concatenate([part[:, None] for part in after], axis=1)
    return jnp.where(over[:, None], start.T, whole), (jnp.where(over, 0, 1).astype(action.dtype), over)


def _pooled(step: Callable[..., Any], unroll: int) -> Function:
    """Actions [steps, batch] and states to start from [steps, 4, batch] were drawn before."""

    def cart_pole(state: Any, actions: jax.Array, starts: jax.Array) -> Any:
        return jax.lax.scan(lambda s, x: step(s, *x), state, (actions, starts), unroll=unroll)

    return cart_pole


def _with_pool(size: Size, dtype: DTypeLike, concatenated: bool = False, unroll: int = 1) -> Made:
    """``size`` is (batch, steps)."""
    batch, steps = size
    actions, starts = normal(90, (steps, batch), dtype), normal(91, (steps, 4, batch), dtype, 0.02)
    state = normal(92, (4, batch), dtype, 0.02)
    if concatenated:
        return _pooled(_concatenated, unroll), (state.T, actions, starts)
    return _pooled(_separate, unroll), (tuple(state), actions, starts)


def _with_rng(size: Size, dtype: DTypeLike) -> Made:
    """Actions and states to start from drawn in the loop, in float32 at every precision."""
    batch, steps = size

    def cart_pole_rng(state: State, key: jax.Array) -> Any:
        def step(carry: tuple[State, jax.Array], _: None) -> tuple[Any, Any]:
            state, key = carry
            key, for_action, for_start = jax.random.split(key, 3)
            action = jax.random.normal(for_action, (batch,), jnp.float32).astype(state[0].dtype)
            start = jax.random.uniform(for_start, (4, batch), jnp.float32, -0.05, 0.05).astype(state[0].dtype)
            after, seen = _separate(state, action, start)
            return (after, key), seen

        (state, _), seen = jax.lax.scan(step, (state, key), None, length=steps)
        return state, seen

    return cart_pole_rng, (tuple(normal(92, (4, batch), dtype, 0.02)), jax.random.key(7))


def _lorenz(size: Size, dtype: DTypeLike) -> Made:
    batch, steps = size
    return functools.partial(loop_programs.lorenz, steps=steps), (normal(90, (batch, 3), dtype, 0.1),)


def _adaptive(size: Size, dtype: DTypeLike) -> Made:
    """Trajectories that each take their own number of steps; ``size`` is (batch,)."""
    return loop_programs.trajectories, (normal(90, size, dtype),)


def _discounted(size: Size, dtype: DTypeLike) -> Made:
    """Rewards summed from the end; ``size`` is (batch, steps)."""
    return loop_programs.discounted, (normal(90, size[::-1], dtype),)


def _logistic_map(size: Size, dtype: DTypeLike) -> Made:
    """A loop over one number; ``size`` is (steps,)."""
    return functools.partial(loop_programs.logistic_map, steps=size[0]), (jnp.asarray(0.3, dtype),)


FEW = ((64, 16), (77, 13))
_cart_pole = functools.partial(
    Workload,
    family="environments",
    size=(2048, 1000),
    test_sizes=FEW,
    paper_size=(2048, 10000),
    checked_size=(256, 50),  # a difference of one rounding decides when an episode ends
)

WORKLOADS = (
    _cart_pole("cart_pole", make=_with_pool),
    _cart_pole("cart_pole_concatenate", make=functools.partial(_with_pool, concatenated=True)),
    _cart_pole("cart_pole_rng", make=_with_rng),
    _cart_pole("cart_pole_unrolled", make=functools.partial(_with_pool, unroll=10)),
    Workload("lorenz", "environments", _lorenz, (2048, 1000), FEW, checked_size=(256, 50)),
    Workload("adaptive_step", "environments", _adaptive, (2048,), ((64,), (77,))),
    Workload("discounted_rewards", "environments", _discounted, (2048, 1000), FEW),
    Workload("logistic_map", "environments", _logistic_map, (1000,), ((16,), (13,)), checked_size=(16,)),
)
