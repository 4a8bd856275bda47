"""Loops that stitching turns into one kernel: environments, solvers, chains, filters. ``steps`` is their length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def cart_pole(state: Any, action: Any) -> Any:
    x, v, angle, w = state
    force = jnp.where(action > 0, 10.0, -10.0)
    c, s = jnp.cos(angle), jnp.sin(angle)
    t = (force + 0.05 * w * w * s) / 1.1
    turn = (9.8 * s - c * t) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
    push = t - 0.05 * turn * c / 1.1
    after = (x + 0.02 * v, v + 0.02 * push, angle + 0.02 * w, w + 0.02 * turn)
    return after, (after[0], jnp.abs(after[0]) > 2.4)


def environment(state: Any, actions: Any) -> Any:
    return jax.lax.scan(cart_pole, state, actions)


def environment_with_concatenate(state: Any, actions: Any) -> Any:
    def step(carry: Any, action: Any) -> Any:
        after, (_, done) = cart_pole(tuple(carry.T), action)
        return jnp.stack(after, -1), done

    return jax.lax.scan(step, state, actions)


def environment_with_rng(state: Any, key: Any, steps: int = 23) -> Any:
    def step(carry: Any, _: Any) -> Any:
        inner, k = carry
        k, use = jax.random.split(k)
        action = jax.random.bernoulli(use, 0.5, state[0].shape)
        after, (_, done) = cart_pole(inner, jnp.where(action, 1.0, -1.0))
        return (after, k), (done, action)

    return jax.lax.scan(step, (state, key), None, length=steps)


def lorenz(y: Any, steps: int = 23) -> Any:
    def f(y: Any) -> Any:
        a, b, c = y[:, 0], y[:, 1], y[:, 2]
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8 / 3 * c], -1)

    def step(y: Any, _: Any) -> Any:
        h = 0.01
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, y, None, length=steps)[0]


def logistic_map(x: Any, steps: int = 23) -> Any:
    return jax.lax.scan(lambda x, _: (3.7 * x * (1 - x), x), x, None, length=steps)


def filtered(x: Any) -> Any:
    return jax.lax.scan(lambda y, x: ((y * 0.9 + x), y), jnp.float32(0), x)


def discounted(rewards: Any) -> Any:
    return jax.lax.scan(lambda g, r: (r + 0.99 * g, r + 0.99 * g), jnp.zeros(rewards.shape[1]), rewards, reverse=True)[
        1
    ]


def kalman(x: Any, p: Any, z: Any, a: Any) -> Any:
    def step(carry: Any, z: Any) -> Any:
        x, p = carry
        x = jnp.einsum("ij,bj->bi", a, x)
        p = jnp.einsum("ij,bjk,lk->bil", a, p, a) + 0.01 * jnp.eye(4)
        k = p[:, :, 0] / (p[:, 0, 0] + 0.1)[:, None]
        x = x + k * (z - x[:, 0])[:, None]
        p = p - k[:, :, None] * p[:, None, 0, :]
        return (x, p), x[:, 0]

    return jax.lax.scan(step, (x, p), z)


def powers(x: Any) -> Any:
    return jax.lax.fori_loop(0, 50, lambda i, x: x * 0.99 + i.astype(jnp.float32) * 0.001, x)


def integers(x: Any, steps: int = 23) -> Any:
    def step(x: Any, i: Any) -> Any:
        x = (x ^ (x << 13)) + i
        return x, x & 255

    return jax.lax.scan(step, x, jnp.arange(steps, dtype=jnp.uint32))


def adaptive(y: Any, end: Any) -> Any:
    """An adaptive step in a while_loop, to be mapped: every trajectory takes its own number of steps."""

    def go_on(c: Any) -> Any:
        return c[0] < end

    def step(c: Any) -> Any:
        t, y, h, n = c

        def f(y: Any) -> Any:
            return -2.0 * y + jnp.sin(y)

        coarse = y + h * f(y)
        half = y + h / 2 * f(y)
        fine = half + h / 2 * f(half)
        error = jnp.abs(fine - coarse)
        ok = error < 1e-4
        wanted = jnp.where(error < 2e-5, 2 * h, jnp.where(ok, h, h / 2))  # powers of two: no rounding decides the path
        return jnp.where(ok, t + h, t), jnp.where(ok, fine, y), wanted, n + 1

    return jax.lax.while_loop(go_on, step, (0.0, y, 0.01, 0))


def trajectories(y: Any) -> Any:
    return jax.vmap(adaptive, (0, None))(y, 0.5)


def until(x: Any, n: Any) -> Any:
    """A number of trips that is data, the same for all rows."""
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.9 + 0.1), (0, x))[1]


def pendulum(state: Any, key: Any, steps: int = 23) -> Any:
    """Pendulum-v1 under random torques; an episode ends after 10 steps and starts again at random."""
    batch = state[0].shape

    def step(carry: Any, _: Any) -> Any:
        angle, spin, age, key = carry
        key, for_torque, for_start = jax.random.split(key, 3)
        torque = jax.random.uniform(for_torque, batch, minval=-2.0, maxval=2.0)
        wrapped = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        reward = -(wrapped**2 + 0.1 * spin**2 + 0.001 * torque**2)
        spin = jnp.clip(spin + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        angle, age = angle + spin * 0.05, age + 1
        over = age >= 10
        start = jax.random.uniform(for_start, (2, *batch), minval=-1.0, maxval=1.0)
        angle, spin = jnp.where(over, jnp.pi * start[0], angle), jnp.where(over, start[1], spin)
        observed = jnp.stack([jnp.cos(angle), jnp.sin(angle), spin], -1)
        return (angle, spin, jnp.where(over, 0, age), key), (observed, reward, over)

    return jax.lax.scan(step, (*state, key), None, length=steps)


def mountain_car(state: Any, key: Any, steps: int = 23) -> Any:
    """MountainCar-v0 under a random policy of three actions; who reaches the top, or takes too long, starts again."""

    def one(state: Any, key: Any) -> Any:
        place, speed, age = state
        for_action, for_start = jax.random.split(key)
        action = jax.random.categorical(for_action, jnp.log(jnp.asarray([0.25, 0.25, 0.5])))
        speed = jnp.clip(speed + (action - 1) * 0.001 - 0.0025 * jnp.cos(3 * place), -0.07, 0.07)
        place = jnp.clip(place + speed, -1.2, 0.6)
        speed = jnp.where((place <= -1.2) & (speed < 0), 0.0, speed)
        over = (place >= 0.5) | (age >= 15)
        start = jax.random.uniform(for_start, minval=-0.6, maxval=-0.4)
        after = (jnp.where(over, start, place), jnp.where(over, 0.0, speed), jnp.where(over, 0, age + 1))
        return after, (action, over)

    def step(carry: Any, _: Any) -> Any:
        states, key = carry
        key, use = jax.random.split(key)
        states, seen = jax.vmap(one)(states, jax.random.split(use, states[0].shape[0]))
        return (states, key), seen

    return jax.lax.scan(step, (state, key), None, length=steps)


def runge_kutta(f: Any, y: Any, h: Any) -> Any:
    """One step of the classical method of fourth order."""
    k1 = f(y)
    k2 = f(y + h / 2 * k1)
    k3 = f(y + h / 2 * k2)
    k4 = f(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def lotka_volterra_rate(y: Any, rates: Any) -> Any:
    prey, hunters = y
    a, b, c, d = rates
    return jnp.stack([a * prey - b * prey * hunters, d * prey * hunters - c * hunters])


def lorenz_rate(y: Any, rates: Any) -> Any:
    a, b, c = y
    s, r, k = rates
    return jnp.stack([s * (b - a), a * (r - c) - b, a * b - k * c])


def fixed_step(rate: Any, y: Any, rates: Any, steps: int = 23) -> Any:
    """Trajectories [batch, steps, n] of ``rate`` from ``y`` [batch, n], each with its own ``rates`` [batch, m]."""

    def solve(y: Any, rates: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            after = runge_kutta(lambda y: rate(y, rates), y, 0.01)
            return after, after

        return jax.lax.scan(step, y, None, length=steps)[1]

    return jax.vmap(solve)(y, rates)


def adaptive_step(rate: Any, y: Any, rates: Any, end: Any) -> Any:
    """``y`` [batch, n] at time ``end`` by Bogacki and Shampine's method: each trajectory chooses its own steps."""

    def solve(y: Any, rates: Any) -> Any:
        def go_on(c: Any) -> Any:
            return (c[0] < end) & (c[3] < 10_000)

        def step(c: Any) -> Any:
            t, y, h, tries = c
            h = jnp.minimum(h, end - t)
            k1 = rate(y, rates)
            k2 = rate(y + h / 2 * k1, rates)
            k3 = rate(y + 3 / 4 * h * k2, rates)
            third = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = rate(third, rates)
            second = y + h * (7 / 24 * k1 + 1 / 4 * k2 + 1 / 3 * k3 + 1 / 8 * k4)
            error = jnp.sqrt(jnp.mean(((third - second) / (1e-5 + 1e-4 * jnp.abs(third))) ** 2))
            taken = error <= 1
            factor = jnp.clip(0.9 * error ** (-1 / 3), 0.2, 5.0)
            return jnp.where(taken, t + h, t), jnp.where(taken, third, y), h * factor, tries + 1

        return jax.lax.while_loop(go_on, step, (jnp.zeros_like(end), y, end / 100, 0))

    return jax.vmap(solve)(y, rates)[1]


def banana(x: Any) -> Any:
    """The logarithm of Rosenbrock's density, of the last axis."""
    return -0.05 * (jnp.sum((x[..., 1:] - x[..., :-1] ** 2) ** 2, -1) * 20.0 + jnp.sum((1 - x[..., :-1]) ** 2, -1))


def metropolis(x: Any, key: Any, steps: int = 23) -> Any:
    """Chains ``x`` [chains, n] by random walk; returns where they end, what they saw, and how often they moved."""

    def step(carry: Any, key: Any) -> Any:
        x, density = carry
        for_move, for_choice = jax.random.split(key)
        there = x + 0.3 * jax.random.normal(for_move, x.shape)
        density_there = banana(there)
        moves = jnp.log(jax.random.uniform(for_choice, density.shape)) < density_there - density
        x = jnp.where(moves[:, None], there, x)
        return (x, jnp.where(moves, density_there, density)), (x, moves)

    (x, _), (seen, moves) = jax.lax.scan(step, (x, banana(x)), jax.random.split(key, steps))
    return x, seen, moves.mean(0)


def hamiltonian(x: Any, key: Any, steps: int = 23, leaps: int = 12) -> Any:
    """Chains ``x`` [chains, n] by Hamiltonian Monte Carlo: each step is a loop of leapfrog steps."""

    def chain(x: Any, key: Any) -> Any:
        slope = jax.grad(banana)

        def leap(_: Any, c: Any) -> Any:
            x, p = c
            p = p + 0.02 * slope(x)
            x = x + 0.04 * p
            return x, p + 0.02 * slope(x)

        def step(x: Any, key: Any) -> Any:
            for_momentum, for_choice = jax.random.split(key)
            p = jax.random.normal(for_momentum, x.shape)
            there, q = jax.lax.fori_loop(0, leaps, leap, (x, p))
            gain = banana(there) - banana(x) - 0.5 * (q @ q - p @ p)
            moves = jnp.log(jax.random.uniform(for_choice)) < gain
            x = jnp.where(moves, there, x)
            return x, (x, moves)

        return jax.lax.scan(step, x, jax.random.split(key, steps))[1]

    return jax.vmap(chain)(x, jax.random.split(key, x.shape[0]))


def autoregressive(x: Any, noise: Any, weights: Any) -> Any:
    """A scalar AR(1) process driven by ``noise`` [steps]."""

    def step(x: Any, e: Any) -> Any:
        after = weights[0] * x + weights[1] + e
        return after, after

    return jax.lax.scan(step, x, noise)[1]


def tracker(x: Any, p: Any, seen: Any) -> Any:
    """A Kalman filter of position and speed in a plane: ``x`` [batch, 4], ``p`` [batch, 4, 4], ``seen``
    [batch, steps, 2].
    """
    h = 0.1
    moved = jnp.eye(4) + h * jnp.eye(4, k=2)
    looks = jnp.eye(2, 4)
    spread, blur = 0.01 * jnp.eye(4), 0.1 * jnp.eye(2)

    def one(x: Any, p: Any, seen: Any) -> Any:
        def step(carry: Any, z: Any) -> Any:
            x, p = carry
            x, p = moved @ x, moved @ p @ moved.T + spread
            s = looks @ p @ looks.T + blur
            inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / (s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0])
            gain = p @ looks.T @ inverse
            off = z - looks @ x
            x = x + gain @ off
            rest = jnp.eye(4) - gain @ looks
            p = rest @ p @ rest.T + gain @ blur @ gain.T  # Joseph's form
            return (x, p), (x, off @ inverse @ off)

        (x, p), (path, distances) = jax.lax.scan(step, (x, p), seen)
        return x, p, path, distances.sum()

    return jax.vmap(one)(x, p, seen)


def recurrent(h: Any, xs: Any, w: Any, u: Any) -> Any:
    """A plain recurrent cell: ``h`` [batch, units], ``xs`` [steps, batch, inputs]."""

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u)
        return h, None

    return jax.lax.scan(step, h, xs)[0]
