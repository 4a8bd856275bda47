"""A pendulum is held upright by evolution: the episodes of a population of policies are one loop, and one kernel.

python examples/rl_rollout.py
"""

from __future__ import annotations

import argparse
import inspect

import jax
import jax.numpy as jnp

from jax_stitch import compare, stitch_jit

Carry = tuple[jax.Array, jax.Array, jax.Array]


@stitch_jit(static_argnames="steps")
def episodes(policies: jax.Array, start: jax.Array, steps: int) -> jax.Array:
    """The return of each policy (three weights: a column), for a pendulum that hangs at some angle at first."""
    for_angle, for_speed, bias = policies

    def step(carry: Carry, _: None) -> tuple[Carry, None]:
        angle, speed, total = carry
        push = 2.0 * jnp.tanh(for_angle * jnp.sin(angle) + for_speed * speed + bias)
        speed = 0.99 * speed + 0.05 * (7.5 * jnp.sin(angle) + 3.0 * push)
        angle = angle + 0.05 * speed
        return (angle, speed, total + jnp.cos(angle) - 0.01 * speed * speed - 0.001 * push * push), None

    zeros = jnp.zeros_like(start)
    (_, _, total), _ = jax.lax.scan(step, (start, zeros, zeros), None, length=steps)
    return total / steps


def main(population: int = 8192, steps: int = 500, generations: int = 8, seconds: float = 2.0) -> None:
    """Evolves policies, then times one generation's episodes."""
    mean, spread = jnp.zeros(3), jnp.full(3, 3.0)
    for generation in range(generations):
        noise_key, start_key = jax.random.split(jax.random.key(generation))
        policies = mean[:, None] + spread[:, None] * jax.random.normal(noise_key, (3, population))
        start = jax.random.uniform(start_key, (population,), minval=-0.5, maxval=0.5)
        returns = episodes(policies, start, steps=steps)
        best = jnp.argsort(returns)[-population // 8 :]
        mean, spread = policies[:, best].mean(1), policies[:, best].std(1)
        print(
            f"generation {generation}: mean return {returns.mean():.2f}, of the best eighth {returns[best].mean():.2f}"
        )
    print(compare(episodes, policies, start, steps=steps, seconds=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in inspect.signature(main).parameters.items():
        if name != "seconds":
            parser.add_argument(name, nargs="?", type=int, default=size.default, help="default: %(default)s")
    main(**vars(parser.parse_args()))
