"""Equinox: a model is a pytree with parts that are no arrays; ``eqx.partition`` sets these apart for any jit."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from jax_stitch import stitch, stitch_jit
from tests.libraries.compared import Jit, batch, compared, waves
from tests.side_by_side import fallbacks


class Attention(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=first)
        self.norm = eqx.nn.LayerNorm(8)
        self.head = eqx.nn.MLP(8, 4, 16, 1, activation=jax.nn.gelu, key=second)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm)(x + self.attention(x, x, x))
        return self.head(y.mean(0))


class Rows(eqx.Module):
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        self.norm = eqx.nn.LayerNorm(8)
        self.head = eqx.nn.MLP(8, 4, 16, 1, activation=jax.nn.gelu, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: self.head(self.norm(row)))(x)


@pytest.mark.slow
def test_training_step() -> None:
    model = eqx.filter_jit(Attention)(jax.random.key(0))
    x, labels = waves(4, 6, 8), batch(4)[1]
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(arrays: Any) -> jax.Array:
        logits = jax.vmap(eqx.combine(arrays, static))(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def run(jit: Jit) -> Any:
        @jit
        def step(arrays: Any, state: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(arrays)
            updates, state = optimizer.update(grads, state, arrays)
            return eqx.apply_updates(arrays, updates), state, value

        now, state, losses = arrays, jax.jit(optimizer.init)(arrays), []
        for _ in range(3):
            now, state, value = step(now, state)
            losses.append(value)
        return jax.tree.leaves(now), losses

    _, losses = compared(run, 1e-3)
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_inside_filter_jit() -> None:
    """Equinox's own transformations outside, a stitched function inside."""
    model = eqx.filter_jit(Rows)(jax.random.key(0))
    x = waves(6, 8)

    def run(jit: Jit) -> Any:
        @eqx.filter_jit
        @eqx.filter_value_and_grad
        def loss(model: Rows, x: jax.Array) -> jax.Array:
            arrays, static = eqx.partition(model, eqx.is_array)
            return jit(lambda arrays, x: eqx.combine(arrays, static)(x).sum())(arrays, x)

        value, grads = loss(model, x)
        return value, jax.tree.leaves(eqx.filter(grads, eqx.is_array))

    compared(run)


class Field(eqx.Module):
    """The vector field of a neural differential equation: its activation is a function among its leaves."""

    net: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        self.net = eqx.nn.MLP(2, 2, 8, 1, activation=jax.nn.softplus, key=key)

    def __call__(self, t: jax.Array, y: jax.Array, args: Any) -> jax.Array:
        return self.net(y)


def solved(field: Field, y: jax.Array) -> jax.Array:
    """Solve by Euler's method; the library's solvers are compared in ``test_diffrax.py``."""
    return jax.lax.fori_loop(0, 4, lambda k, y: y + 0.25 * field(jnp.asarray(k), y, None), y)


def test_a_module_with_functions_in_filter_jit() -> None:
    """A step that is given a module and returns one: ``TypeError``, for the activation among its results."""
    optimizer = optax.adam(1e-2)

    def step(field: Field, state: Any, y: jax.Array) -> Any:
        value, grads = eqx.filter_value_and_grad(lambda f: jnp.mean(jax.vmap(solved, (None, 0))(f, y) ** 2))(field)
        updates, state = optimizer.update(grads, state, eqx.filter(field, eqx.is_array))
        return eqx.apply_updates(field, updates), state, value

    def run(jit: Jit) -> Any:
        filtered = eqx.filter_jit(stitch(step) if jit is stitch_jit else step)
        field = Field(jax.random.key(0))
        state, losses = optimizer.init(eqx.filter(field, eqx.is_array)), []
        for _ in range(2):
            field, state, value = filtered(field, state, waves(4, 2))
            losses.append(value)
        assert field.net.activation is not None
        return jax.tree.leaves(eqx.filter(field, eqx.is_array)), losses

    _, losses = compared(run, 1e-3)
    assert losses[-1] < losses[0]


def test_what_is_no_array_goes_through() -> None:
    """A name, a function, a number of Python: what the function returns beside its arrays."""

    def named(x: jax.Array, name: str) -> Any:
        return {"name": name, "of": jnp.tanh, "half": jax.nn.softmax(x) * 0.5, "count": 3, "none": None}

    @eqx.filter_jit
    def inside(x: jax.Array) -> Any:
        return stitch(named)(x, "a")

    found = inside(waves(8))
    assert found["name"] == "a" and found["of"] is jnp.tanh and found["none"] is None and int(found["count"]) == 3
    assert jnp.allclose(found["half"], jax.nn.softmax(waves(8)) * 0.5)


def test_checks_that_raise_from_the_device() -> None:
    """They call back to Python, and are called in a stitched program as well."""

    def checked(x: jax.Array) -> jax.Array:
        x = eqx.error_if(x, jnp.any(x < 0), "negative", on_error="raise")
        return jax.nn.softmax(jnp.sqrt(x))

    x = jnp.arange(8.0)
    with fallbacks() as messages:
        found = stitch_jit(checked)(x)
    assert not messages
    assert jnp.allclose(found, jax.jit(checked)(x))
    with pytest.raises(Exception, match="negative"):
        stitch_jit(checked)(-x).block_until_ready()
    compared(lambda jit: jit(lambda x: eqx.error_if(jax.nn.softmax(x), x[0] < 0, "negative", on_error="nan"))(x))
