"""A small Transformer in plain JAX learns to repeat a pattern of letters; one training step with Adam is stitched.

python examples/transformer.py
"""

from __future__ import annotations

import argparse
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from jax_stitch import compare, stitch_jit

HEADS, LETTERS = 4, 32


def normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMSNorm."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def layer(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    """Causal attention and a GELU MLP, each behind a norm and a residual connection."""
    batch, length, features = x.shape
    y = normalised(x, p["norm1"]) @ p["qkv"]
    q, k, v = (t.reshape(batch, length, HEADS, -1).swapaxes(1, 2) for t in jnp.split(y, 3, -1))
    scores = q @ k.swapaxes(2, 3) / (features // HEADS) ** 0.5
    seen = jnp.tril(jnp.ones((length, length), bool))
    attended = jax.nn.softmax(jnp.where(seen, scores, -1e9)) @ v
    x = x + attended.swapaxes(1, 2).reshape(batch, length, features) @ p["out"]
    return x + jax.nn.gelu(normalised(x, p["norm2"]) @ p["up"]) @ p["down"]


def loss_of(params: Any, letters: jax.Array) -> jax.Array:
    """Mean cross entropy of each next letter."""
    x = params["letters"][letters[:, :-1]] + params["places"][: letters.shape[1] - 1]
    for p in params["layers"]:
        x = layer(x, p)
    logits = x @ params["letters"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), letters[:, 1:, None], -1)
    return -picked.mean()


@stitch_jit
def train_step(
    params: Any, moments: Any, count: jax.Array, letters: jax.Array
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """The loss, its gradient, and Adam's update of all parameters."""
    loss, gradients = jax.value_and_grad(loss_of)(params, letters)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradients)

    def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - 2e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-6)

    return jax.tree.map(update, params, first, second), (first, second), count, loss


def made(length: int, features: int, layers: int) -> Any:
    """Parameters to start from."""
    keys = iter(jax.random.split(jax.random.key(0), 4 * layers + 2))

    def weights(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    ones = jnp.ones(features)
    made_layers = [
        {"norm1": ones, "qkv": weights(features, 3 * features), "out": weights(features, features), "norm2": ones}
        | {"up": weights(features, 4 * features), "down": weights(4 * features, features)}
        for _ in range(layers)
    ]
    return {"letters": weights(LETTERS, features), "places": 0.1 * weights(length, features), "layers": made_layers}


def main(
    batch: int = 8, length: int = 128, features: int = 128, layers: int = 2, steps: int = 30, seconds: float = 2.0
) -> None:
    """Trains, then times one step."""
    pattern = jax.random.randint(jax.random.key(1), (batch, 8), 0, LETTERS)
    letters = jnp.tile(pattern, (1, -(-length // 8)))[:, :length]
    params = made(length, features, layers)
    zeros = jax.tree.map(jnp.zeros_like, params)
    moments, count = (zeros, zeros), jnp.float32(0)
    for step in range(steps):
        params, moments, count, loss = train_step(params, moments, count, letters)
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss:.3f}")
    print(compare(train_step, params, moments, count, letters, seconds=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in inspect.signature(main).parameters.items():
        if name != "seconds":
            parser.add_argument(name, nargs="?", type=int, default=size.default, help="default: %(default)s")
    main(**vars(parser.parse_args()))
