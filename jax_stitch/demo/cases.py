"""What the demo runs: a normalisation with its gradient, a loop and a training step, in plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A function to be stitched, at some size."""

    title: str
    make: Callable[..., Made]
    """From a size to the function and its arguments."""
    size: tuple[int, ...]
    small: tuple[int, ...]
    """For tests."""


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Return each row of ``x`` normalised."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def layer_norm_with_gradient(rows: int, features: int) -> Made:
    """Return the result, and the gradients of all three arguments."""

    def forward_and_backward(x: jax.Array, scale: jax.Array, bias: jax.Array, g: jax.Array) -> Any:
        y, back = jax.vjp(layer_norm, x, scale, bias)
        return y, back(g)

    x, g = (jax.random.normal(jax.random.key(n), (rows, features)) for n in (0, 1))
    return forward_and_backward, (x, jnp.ones(features), jnp.zeros(features), g)


def push_cart(state: tuple[jax.Array, ...], action: jax.Array) -> tuple[jax.Array, ...]:
    """Return one step of Cart-pole for each environment of a batch: its position, speed, angle and turning speed."""
    x, v, angle, w = state
    force, c, s = jnp.where(action, 10.0, -10.0), jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * w * w * s) / 1.1
    turn = (9.8 * s - c * push) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
    after = (x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * c / 1.1), angle + 0.02 * w, w + 0.02 * turn)
    done = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 0.2095)
    return tuple(jnp.where(done, 0.0, value) for value in after)


def cart_pole(batch: int, steps: int) -> Made:
    """Return environments that are pushed at random, and start again when the pole falls."""

    def rollout(state: tuple[jax.Array, ...], key: jax.Array) -> Any:
        def step(carry: tuple[Any, jax.Array], _: None) -> tuple[Any, jax.Array]:
            state, key = carry
            key, use = jax.random.split(key)
            state = push_cart(state, jax.random.bernoulli(use, 0.5, (batch,)))
            return (state, key), state[2]

        return jax.lax.scan(step, (state, key), None, length=steps)

    return rollout, (tuple(jnp.zeros((4, batch))), jax.random.key(0))


def training_step(batch: int, length: int, features: int) -> Made:
    """Return a Transformer block, its gradient and AdamW."""
    from jax_stitch.demo.block import make_training_step  # Flax and Optax, which the library does without

    return make_training_step((batch, length, features), jnp.float32)


CASES = (
    Case("LayerNorm and its gradient", layer_norm_with_gradient, (8192, 1024), (64, 128)),
    Case("Cart-pole, a loop with random numbers", cart_pole, (2048, 1000), (16, 8)),
    Case("Transformer training step, AdamW", training_step, (8, 128, 256), (2, 8, 16)),
)
