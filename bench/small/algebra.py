"""Small linear algebra and complex numbers, in loops and in batches: filters, controllers, estimators, recurrences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

from bench.small.made import Made, Program, normal, uniform


def _filter(observed: Any, transition: Any) -> Any:
    size, eye = transition.shape[0], jnp.eye(transition.shape[0], dtype=observed.dtype)

    def step(carry: Any, y: Any) -> Any:
        mean, cov, total = carry
        mean, cov = transition @ mean, transition @ cov @ transition.T + 0.1 * eye
        s, error = cov[:2, :2] + 0.5 * eye[:2, :2], y - mean[:2]
        factor = jnp.linalg.cholesky(s)
        scaled = jsl.solve_triangular(factor, error, lower=True)
        gain = jsl.cho_solve((factor, True), cov[:2]).T
        total = total - 0.5 * scaled @ scaled - jnp.log(jnp.diag(factor)).sum()
        return (mean + gain @ error, cov - gain @ s @ gain.T, total), mean

    start = (jnp.zeros(size, observed.dtype), eye, jnp.zeros((), observed.dtype))
    (_, _, total), means = jax.lax.scan(step, start, observed)
    return total, means


def filter_cholesky(steps: int = 200) -> Made:
    """The likelihood of a Kalman filter of four states, by Cholesky factors."""
    return _filter, (normal(0, steps, 2), normal(1, 4, 4, scale=0.3))


def filter_batch(count: int = 64, steps: int = 100) -> Made:
    """Many such filters at once."""
    return jax.vmap(_filter, (0, None)), (normal(0, count, steps, 2), normal(1, 4, 4, scale=0.3))


def smoother(steps: int = 200) -> Made:
    """A smoother of Rauch, Tung and Striebel, which solves a system in each step."""

    def run(means: Any, roots: Any, transition: Any) -> Any:
        eye = jnp.eye(4, dtype=means.dtype)
        covariances = roots @ roots.transpose(0, 2, 1) + eye

        def step(carry: Any, x: Any) -> Any:
            (mean, cov), (filtered, spread) = carry, x
            predicted = transition @ spread @ transition.T + 0.1 * eye
            gain = jnp.linalg.solve(predicted, transition @ spread).T
            mean = filtered + gain @ (mean - transition @ filtered)
            cov = spread + gain @ (cov - predicted) @ gain.T
            return (mean, cov), mean

        return jax.lax.scan(step, (means[-1], covariances[-1]), (means, covariances), reverse=True)[1]

    return run, (normal(0, steps, 4), normal(1, steps, 4, 4, scale=0.1), normal(2, 4, 4, scale=0.3))


def riccati(steps: int = 100) -> Made:
    """The gain of a linear regulator of six states and two controls, by iteration."""

    def run(a: Any, b: Any) -> Any:
        def step(p: Any, _: Any) -> Any:
            gain = jnp.linalg.solve(jnp.eye(2, dtype=a.dtype) + b.T @ p @ b, b.T @ p @ a)
            return jnp.eye(6, dtype=a.dtype) + a.T @ p @ (a - b @ gain), None

        return jax.lax.scan(step, jnp.eye(6, dtype=a.dtype), None, length=steps)[0]

    return run, (normal(0, 6, 6, scale=0.3), normal(1, 6, 2))


def gauss_newton(steps: int = 30) -> Made:
    """Six parameters fitted to 32 values."""

    def run(x: Any, y: Any) -> Any:
        def residual(p: Any) -> Any:
            return jnp.tanh(x @ p) - y

        def step(p: Any, _: Any) -> Any:
            slopes = jax.jacfwd(residual)(p)
            system = slopes.T @ slopes + 0.1 * jnp.eye(6, dtype=x.dtype)
            return p - jnp.linalg.solve(system, slopes.T @ residual(p)), None

        return jax.lax.scan(step, jnp.zeros(6, x.dtype), None, length=steps)[0]

    return run, (normal(0, 32, 6), normal(1, 32))


def cholesky_batch(size: int, count: int = 100) -> Made:
    """Cholesky factors of many small matrices."""
    a = normal(0, count, size, size)
    return jnp.linalg.cholesky, (a @ a.transpose(0, 2, 1) + size * np.eye(size),)


def ridge_batch(count: int = 200) -> Made:
    """Many regressions with five coefficients."""

    def one(x: Any, y: Any) -> Any:
        return jnp.linalg.solve(x.T @ x + 0.1 * jnp.eye(5, dtype=x.dtype), x.T @ y)

    return jax.vmap(one), (normal(0, count, 20, 5), normal(1, count, 20))


def recurrence(steps: int = 500, width: int = 64) -> Made:
    """A linear recurrence of complex state (LRU, S4D)."""

    def run(real: Any, imaginary: Any, speed: Any) -> Any:
        decay = jnp.exp(jax.lax.complex(jnp.full_like(speed, -0.1), speed))

        def step(h: Any, x: Any) -> Any:
            h = decay * h + x
            return h, h.real

        xs = jax.lax.complex(real, imaginary)
        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    return run, (normal(0, steps, width), normal(1, steps, width), uniform(2, 0, 3, width))


def gates(steps: int = 100) -> Made:
    """Gates on two qubits."""

    def run(real: Any, imaginary: Any) -> Any:
        def step(state: Any, gate: Any) -> Any:
            state = gate @ state
            state = state / jnp.linalg.norm(state)
            return state, jnp.abs(state) ** 2

        every = jax.lax.complex(real, imaginary)
        return jax.lax.scan(step, every[0, 0], every)[1]

    return run, (normal(0, steps, 4, 4), normal(1, steps, 4, 4))


def coherence(rows: int = 64, columns: int = 2000) -> Made:
    """How alike two complex signals are."""

    def run(*parts: Any) -> Any:
        a, b = jax.lax.complex(*parts[:2]), jax.lax.complex(*parts[2:])
        both = (a * jnp.conj(b)).mean(1)
        return jnp.abs(both) ** 2 / ((jnp.abs(a) ** 2).mean(1) * (jnp.abs(b) ** 2).mean(1))

    return run, tuple(normal(k, rows, columns) for k in range(4))


PROGRAMS = (
    Program("filter_cholesky", "dynamax", filter_cholesky),
    Program("filter_batch", "dynamax", filter_batch),
    Program("smoother", "dynamax", smoother),
    Program("riccati", "control", riccati),
    Program("gauss_newton", "estimation", gauss_newton),
    Program("cholesky_6", "statistics", lambda: cholesky_batch(6)),
    Program("cholesky_16", "statistics", lambda: cholesky_batch(16)),
    Program("ridge_batch", "statistics", ridge_batch),
    Program("recurrence", "S5, LRU", recurrence),
    Program("gates", "quantum circuits", gates),
    Program("coherence", "signal processing", coherence),
)
