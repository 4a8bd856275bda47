"""Foxes and rabbits: the rates of a Lotka-Volterra system are fitted to noisy trajectories, by gradients through RK4.

python examples/ode_fit.py
"""

from __future__ import annotations

import argparse
import inspect
from functools import partial

import jax
import jax.numpy as jnp

from jax_stitch import compare, stitch_jit

Pair = tuple[jax.Array, jax.Array]
State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
TRUE = jnp.array([1.1, 0.4, 0.1, 0.4])
STEP = 0.05


def rates(log_rates: jax.Array, rabbits: jax.Array, foxes: jax.Array) -> Pair:
    """How fast both change."""
    born, eaten, fed, died = jnp.exp(log_rates)
    return born * rabbits - eaten * rabbits * foxes, fed * rabbits * foxes - died * foxes


def solve(log_rates: jax.Array, start: Pair, steps: int) -> Pair:
    """A trajectory, by the classical Runge-Kutta method."""
    f = partial(rates, log_rates)

    def step(y: Pair, _: None) -> tuple[Pair, Pair]:
        a, b = y
        k1 = f(a, b)
        k2 = f(a + STEP / 2 * k1[0], b + STEP / 2 * k1[1])
        k3 = f(a + STEP / 2 * k2[0], b + STEP / 2 * k2[1])
        k4 = f(a + STEP * k3[0], b + STEP * k3[1])
        a = a + STEP / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
        b = b + STEP / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
        return (a, b), (a, b)

    return jax.lax.scan(step, start, None, length=steps)[1]


@stitch_jit
def fit_step(state: State, start: Pair, seen: Pair) -> tuple[State, jax.Array]:
    """A step of Adam on the mean squared error of the logarithms of all rates; and the error."""
    log_rates, first, second, count = state

    def loss_of(log_rates: jax.Array, start: Pair, seen: Pair) -> jax.Array:
        """Of one trajectory: where the gradient is taken of each, they stay apart, and the loops become one kernel."""
        a, b = solve(log_rates, start, seen[0].shape[0])
        return jnp.square(a - seen[0]).mean() + jnp.square(b - seen[1]).mean()

    losses, gradients = jax.vmap(jax.value_and_grad(loss_of), (None, 0, 1))(log_rates, start, seen)
    gradient, count = gradients.mean(0), count + 1
    first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient * gradient
    change = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.99**count)) + 1e-8)
    return (log_rates - 0.03 * change, first, second, count), losses.mean()


def main(batch: int = 2048, steps: int = 200, rounds: int = 200, seconds: float = 2.0) -> None:
    """Fits, then times one step of it."""
    keys = jax.random.split(jax.random.key(0), 4)
    rabbits = jax.random.uniform(keys[0], (batch,), minval=5.0, maxval=10.0)
    foxes = jax.random.uniform(keys[1], (batch,), minval=2.0, maxval=6.0)
    exact = solve(jnp.log(TRUE), (rabbits, foxes), steps)
    noise = [0.1 * jax.random.normal(key, exact[0].shape) for key in keys[2:]]
    seen = (exact[0] + noise[0], exact[1] + noise[1])
    state: State = (jnp.log(jnp.array([0.8, 0.3, 0.15, 0.5])), jnp.zeros(4), jnp.zeros(4), jnp.float32(0))
    for _ in range(rounds):
        state, loss = fit_step(state, (rabbits, foxes), seen)
    found = ", ".join(f"{rate:.2f}" for rate in jnp.exp(state[0]))
    print(f"after {rounds} steps: rates {found} (1.10, 0.40, 0.10, 0.40), loss {loss:.3f} (noise 0.020)")
    print(compare(fit_step, state, (rabbits, foxes), seen, seconds=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in inspect.signature(main).parameters.items():
        if name != "seconds":
            parser.add_argument(name, nargs="?", type=int, default=size.default, help="default: %(default)s")
    main(**vars(parser.parse_args()))
