"""Training steps over eight devices, in the ways that people spread them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.devices8.runner import slow
from tests.devices8.side_by_side import compare, grid, line, numbers, put

BATCH, WIDTH, HIDDEN = 32, 16, 64


def parameters() -> dict[str, jax.Array]:
    return {
        "scale": jnp.asarray(np.ones(WIDTH, np.float32)),
        "up": numbers(WIDTH, HIDDEN, scale=0.3),
        "bias": jnp.asarray(np.zeros(HIDDEN, np.float32)),
        "down": numbers(HIDDEN, WIDTH, scale=0.2),
    }


def block(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    normal = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"]
    return x + jax.nn.gelu(normal @ p["up"] + p["bias"]) @ p["down"]


def loss(p: dict[str, jax.Array], x: jax.Array, target: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(block(p, block(p, x)))
    return -(logits * target).sum(-1).mean()


def adam(p: Any, moments: Any, grads: Any) -> tuple[Any, Any]:
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, moments[1], grads)
    return jax.tree.map(lambda w, m, v: w - 1e-2 * m / (jnp.sqrt(v) + 1e-8), p, first, second), (first, second)


def step(p: Any, moments: Any, x: jax.Array, target: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(p, x, target)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
    p, moments = adam(p, moments, jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), grads))
    return p, moments, value, norm


def descent(p: Any, x: jax.Array, target: jax.Array) -> Any:
    """A step of little: what is new about several devices is in the gradient."""
    value, grads = jax.value_and_grad(lambda p: -(jax.nn.log_softmax(block(p, x)) * target).sum(-1).mean())(p)
    return jax.tree.map(lambda w, g: w - 1e-2 * g, p, grads), value


def data(mesh: Any, *rows: Any) -> tuple[jax.Array, jax.Array]:
    e = np.exp(numbers(BATCH, WIDTH, scale=3))
    target = e / e.sum(-1, keepdims=True)
    return put(mesh, numbers(BATCH, WIDTH), *rows), put(mesh, target, *rows)


def placed(mesh: Any, specs: dict[str, P]) -> tuple[Any, Any]:
    """Parameters and moments, split as ``specs`` say."""
    p = {name: put(mesh, value, *specs[name]) for name, value in parameters().items()}
    first, second = (
        jax.tree.map(lambda w: put(mesh, np.zeros(w.shape, np.float32), *w.sharding.spec), p) for _ in range(2)
    )
    return p, (first, second)


def several_steps(jitted: Any) -> Any:
    """Three steps, each on the results of the one before."""

    def run(p: Any, moments: Any, x: jax.Array, target: jax.Array) -> Any:
        for _ in range(3):
            p, moments, value, norm = jitted(p, moments, x, target)
        return p, moments, value, norm

    return run


@slow
def case_data_parallel() -> None:
    mesh = line()
    p, _ = placed(mesh, dict.fromkeys(parameters(), P()))
    text = compare(descent, p, *data(mesh, "i"))
    assert "stablehlo.all_reduce" in text


@slow
def case_tensor_parallel() -> None:
    mesh = grid()
    specs = {"scale": P(), "up": P(None, "y"), "bias": P("y"), "down": P("y", None)}
    p, moments = placed(mesh, specs)
    compare(step, p, moments, *data(mesh, "x"))


def case_fully_sharded() -> None:
    """Parameters in eighths: gathered where they are used, their gradients scattered."""
    mesh = line()
    specs = {"scale": P("i"), "up": P(None, "i"), "bias": P("i"), "down": P("i")}
    p, _ = placed(mesh, specs)
    out = jax.tree.map(lambda w: w.sharding, p)
    text = compare(descent, p, *data(mesh, "i"), out_shardings=(out, None))
    assert "stablehlo.all_gather" in text


@slow
def case_a_whole_step() -> None:
    """With moments, and the gradient's norm, which needs all devices once more."""
    mesh = line()
    specs = {"scale": P("i"), "up": P(None, "i"), "bias": P("i"), "down": P("i")}
    for given in (specs, dict.fromkeys(specs, P())):
        p, moments = placed(mesh, given)
        out = jax.tree.map(lambda w: w.sharding, (p, moments))
        text = compare(step, p, moments, *data(mesh, "i"), out_shardings=(*out, None, None))
        assert "stablehlo.all_reduce" in text and ("stablehlo.all_gather" in text or given is not specs)
