"""Hamiltonian Monte Carlo: many chains sample a correlated Gaussian in one loop, with random numbers drawn in it.

python examples/mcmc.py
"""

from __future__ import annotations

import argparse
import inspect

import jax
import jax.numpy as jnp

from jax_stitch import compare, stitch_jit

Chains = tuple[jax.Array, jax.Array, jax.Array]
STEP, LEAPS, CORRELATION = 0.2, 8, 0.8


def energy(x: jax.Array, y: jax.Array) -> jax.Array:
    """Of a Gaussian in two dimensions with unit variances."""
    return (x * x - 2 * CORRELATION * x * y + y * y) / (2 * (1 - CORRELATION**2))


def slope(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The gradient of ``energy``."""
    scale = 1 / (1 - CORRELATION**2)
    return scale * (x - CORRELATION * y), scale * (y - CORRELATION * x)


@stitch_jit(static_argnames=("chains", "samples"))
def sample(key: jax.Array, chains: int, samples: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``samples`` points of each of ``chains`` chains, and how often each moved."""

    def step(carry: Chains, key: jax.Array) -> tuple[Chains, tuple[jax.Array, jax.Array]]:
        x, y, moved = carry
        for_p, for_q, for_choice = jax.random.split(key, 3)
        p, q = jax.random.normal(for_p, (chains,)), jax.random.normal(for_q, (chains,))
        before = energy(x, y) + (p * p + q * q) / 2
        a, b = x, y
        for _ in range(LEAPS):
            da, db = slope(a, b)
            p, q = p - STEP / 2 * da, q - STEP / 2 * db
            a, b = a + STEP * p, b + STEP * q
            da, db = slope(a, b)
            p, q = p - STEP / 2 * da, q - STEP / 2 * db
        after = energy(a, b) + (p * p + q * q) / 2
        taken = jax.random.uniform(for_choice, (chains,)) < jnp.exp(before - after)
        x, y = jnp.where(taken, a, x), jnp.where(taken, b, y)
        return (x, y, moved + taken), (x, y)

    zeros = jnp.zeros(chains)
    (_, _, moved), (x, y) = jax.lax.scan(step, (zeros, zeros, zeros), jax.random.split(key, samples))
    return x, y, moved / samples


def main(chains: int = 4096, samples: int = 500, seconds: float = 2.0) -> None:
    """Samples, checks the moments, then times it."""
    x, y, moved = sample(jax.random.key(0), chains=chains, samples=samples)
    late = samples // 5
    x, y = x[late:], y[late:]
    mean = (x * y).mean()
    print(f"moved {moved.mean():.0%} of the time; variance {x.var():.3f} (1), correlation {mean:.3f} ({CORRELATION})")
    print(compare(sample, jax.random.key(0), chains=chains, samples=samples, seconds=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in inspect.signature(main).parameters.items():
        if name != "seconds":
            parser.add_argument(name, nargs="?", type=int, default=size.default, help="default: %(default)s")
    main(**vars(parser.parse_args()))
