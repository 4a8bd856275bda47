"""Solvers of differential equations, and what samples by them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.made import Made, Program, normal, uniform


def orbit(steps: int = 500) -> Made:
    """A planet about the sun by leapfrog, with vectors of three."""

    def run(position: Any, velocity: Any) -> Any:
        def pull(x: Any) -> Any:
            return -x / jnp.sum(x * x) ** 1.5

        def step(carry: Any, _: Any) -> Any:
            x, v = carry
            v = v + 0.005 * pull(x)
            x = x + 0.01 * v
            v = v + 0.005 * pull(x)
            return (x, v), x

        return jax.lax.scan(step, (position, velocity), None, length=steps)

    return run, (np.array([1.0, 0.0, 0.1]), np.array([0.0, 1.0, 0.05]))


def bodies(count: int = 5, steps: int = 50) -> Made:
    """The gradient of where some bodies end that attract each other."""

    def loss(positions: Any, velocities: Any, masses: Any) -> Any:
        def pull(x: Any) -> Any:
            apart = x[None, :, :] - x[:, None, :]
            square = jnp.sum(apart**2, -1) + 0.01
            return jnp.sum(apart * (masses / square**1.5)[..., None], 1)

        def step(carry: Any, _: Any) -> Any:
            x, v = carry
            v = v + 0.01 * pull(x)
            return (x + 0.01 * v, v), None

        last, _ = jax.lax.scan(step, (positions, velocities), None, length=steps)[0]
        return jnp.sum(last**2)

    return jax.grad(loss, (0, 1, 2)), (normal(0, count, 3), normal(1, count, 3, scale=0.3), uniform(2, 0.1, 1, count))


def _rk4(f: Callable[[Any], Any], y: Any, h: float) -> Any:
    k1 = f(y)
    k2 = f(y + 0.5 * h * k1)
    k3 = f(y + 0.5 * h * k2)
    k4 = f(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def ode_batch(batch: int = 64, steps: int = 100) -> Made:
    """A batch of predators and prey by Runge and Kutta's fourth order."""

    def run(start: Any, rates: Any) -> Any:
        def f(y: Any) -> Any:
            prey, hunters = y[:, 0], y[:, 1]
            met = prey * hunters
            return jnp.stack([rates[:, 0] * prey - rates[:, 1] * met, rates[:, 2] * met - rates[:, 3] * hunters], -1)

        def step(y: Any, _: Any) -> Any:
            y = _rk4(f, y, 0.02)
            return y, y

        return jax.lax.scan(step, start, None, length=steps)

    return run, (uniform(0, 0.5, 2.0, batch, 2), uniform(1, 0.5, 1.5, batch, 4))


def neural_ode(width: int = 32, steps: int = 20) -> Made:
    """The gradient through a solver whose right side is a small net."""

    def loss(params: Any, start: Any) -> Any:
        def f(y: Any) -> Any:
            return jnp.tanh(y @ params[0] + params[1]) @ params[2]

        last, _ = jax.lax.scan(lambda y, _: (_rk4(f, y, 0.05), None), start, None, length=steps)
        return jnp.mean(last**2)

    params = normal(0, 4, width, scale=0.5), normal(1, width, scale=0.1), normal(2, width, 4, scale=0.2)
    return jax.grad(loss), (params, normal(3, 16, 4))


def adaptive(batch: int = 16) -> Made:
    """A batch of oscillators by steps of a pair of orders, each as long as its error allows; rows end apart."""

    def solve(start: Any, stiffness: Any) -> Any:
        def f(y: Any) -> Any:
            return jnp.stack([y[1], stiffness * (1 - y[0] ** 2) * y[1] - y[0]])

        def go_on(carry: Any) -> Any:
            return carry[1] < 3.0

        def step(carry: Any) -> Any:
            y, t, h, tries = carry
            k1 = f(y)
            k2 = f(y + 0.5 * h * k1)
            k3 = f(y + 0.75 * h * k2)
            after = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = f(after)
            error = h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)
            size = jnp.sqrt(jnp.mean((error / (1e-3 + 1e-3 * jnp.abs(y))) ** 2)) + 1e-10
            good = size < 1.0
            factor = jnp.clip(0.9 * size ** (-1 / 3), 0.2, 5.0)
            return jnp.where(good, after, y), jnp.where(good, t + h, t), jnp.minimum(h * factor, 0.5), tries + 1

        zero = jnp.zeros((), start.dtype)
        return jax.lax.while_loop(go_on, step, (start, zero, zero + 0.05, 0))

    return jax.vmap(solve), (uniform(0, 0.5, 2.0, batch, 2), uniform(1, 0.5, 5.0, batch))


def leapfrog(points: int = 100, features: int = 8) -> Made:
    """A proposal of Hamiltonian Monte Carlo for logistic regression: ten steps, energies, and the choice."""

    def run(x: Any, y: Any, position: Any, momentum: Any, chance: Any) -> Any:
        def potential(w: Any) -> Any:
            return jnp.sum(jax.nn.softplus(-y * (x @ w))) + 0.5 * jnp.sum(w * w)

        slope = jax.grad(potential)

        def step(carry: Any, _: Any) -> Any:
            w, p = carry
            p = p - 0.01 * slope(w)
            w = w + 0.02 * p
            return (w, p - 0.01 * slope(w)), None

        w, p = jax.lax.scan(step, (position, momentum), None, length=10)[0]
        gained = potential(position) + 0.5 * momentum @ momentum - potential(w) - 0.5 * p @ p
        return jnp.where(jnp.log(chance) < gained, w, position), gained

    made = normal(0, points, features), np.sign(normal(1, points)), normal(2, features), normal(3, features)
    return run, (*made, np.array(0.5))


PROGRAMS = (
    Program("orbit", "orbit integrators", orbit),
    Program("bodies_gradient", "orbit integrators", bodies),
    Program("ode_batch", "solvers", functools.partial(ode_batch)),
    Program("neural_ode_gradient", "solvers", neural_ode),
    Program("adaptive", "solvers whose rows end apart", adaptive),
    Program("leapfrog", "Hamiltonian Monte Carlo", leapfrog),
)
