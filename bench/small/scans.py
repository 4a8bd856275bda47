"""Scans whose carry is some numbers or small matrices: filters, neurons, hidden Markov models, and their gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.small.made import Made, Program, normal, uniform


def scalar_carries(carries: int, steps: int) -> Made:
    """The gradient through a scan that carries many scalars, each coupled to its neighbour."""

    def loss(params: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            after = [
                a + 0.01 * (jnp.tanh(p * b) - 0.5 * a * x)
                for a, b, p in zip(carry, carry[1:] + carry[:1], params, strict=True)
            ]
            return after, after[0]

        last, seen = jax.lax.scan(step, [p * 0.5 for p in params], xs)
        return sum(last) + jnp.sum(seen**2)

    return jax.grad(loss), (list(normal(0, carries)), normal(1, steps))


def _kalman_loss(params: Any, observed: Any) -> Any:
    """Minus the log likelihood of a local linear trend in two coordinates."""
    transition, noise, seen = params["transition"], params["noise"], params["seen"]
    emission = jnp.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], observed.dtype)
    eye = jnp.eye(4, dtype=observed.dtype)

    def step(carry: Any, y: Any) -> Any:
        mean, cov = carry
        mean, cov = transition @ mean, transition @ cov @ transition.T + noise
        s = emission @ cov @ emission.T + seen
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
        gain = cov @ emission.T @ inverse
        error = y - emission @ mean
        mean, cov = mean + gain @ error, (eye - gain @ emission) @ cov
        return (mean, cov), 0.5 * (error @ inverse @ error + jnp.log(det))

    start = (jnp.zeros(4, observed.dtype), eye)
    return jax.lax.scan(step, start, observed)[1].sum()


def kalman(gradient: bool, steps: int = 100) -> Made:
    """A Kalman filter with four states, two of them seen."""
    transition = np.eye(4)
    transition[0, 2] = transition[1, 3] = 0.1
    params = {"transition": transition, "noise": np.eye(4) * 0.05, "seen": np.eye(2) * 0.2}
    return (jax.grad(_kalman_loss) if gradient else _kalman_loss), (params, normal(0, steps, 2))


def _neuron_rates(v: Any) -> Any:
    """Opening and closing of the gates of Hodgkin and Huxley."""
    am = 0.1 * (v + 40.0) / (1.0 - jnp.exp(-(v + 40.0) / 10.0))
    bm = 4.0 * jnp.exp(-(v + 65.0) / 18.0)
    ah = 0.07 * jnp.exp(-(v + 65.0) / 20.0)
    bh = 1.0 / (1.0 + jnp.exp(-(v + 35.0) / 10.0))
    an = 0.01 * (v + 55.0) / (1.0 - jnp.exp(-(v + 55.0) / 10.0))
    bn = 0.125 * jnp.exp(-(v + 65.0) / 80.0)
    return (am, bm), (ah, bh), (an, bn)


def _membrane(state: Any, current: Any, g: Any) -> Any:
    v, m, h, n = state
    gates = []
    for gate, (a, b) in zip((m, h, n), _neuron_rates(v), strict=True):
        end = a / (a + b)
        gates.append(end + (gate - end) * jnp.exp(-0.025 * (a + b)))
    m, h, n = gates
    flow = g[0] * m**3 * h * (v - 50.0) + g[1] * n**4 * (v + 77.0) + g[2] * (v + 54.3)
    return (v + 0.025 * (current - flow), m, h, n)


def neuron(gradient: bool, steps: int = 1000) -> Made:
    """One compartment of Hodgkin and Huxley: the voltage's distance to a target, or its gradient."""

    def loss(g: Any, currents: Any) -> Any:
        def step(state: Any, current: Any) -> Any:
            state = _membrane(state, current, g)
            return state, state[0]

        start = tuple(jnp.asarray(x, currents.dtype) for x in (-65.0, 0.05, 0.6, 0.32))
        return jnp.mean((jax.lax.scan(step, start, currents)[1] + 60.0) ** 2)

    return (jax.grad(loss) if gradient else loss), (np.array([120.0, 36.0, 0.3]), uniform(0, 0.0, 12.0, steps))


def cable(compartments: int = 32, steps: int = 100) -> Made:
    """A cable of compartments: channels, then the voltages by a tridiagonal solve, step by step."""

    def run(g: Any, currents: Any) -> Any:
        def step(state: Any, current: Any) -> Any:
            v, m, h, n = _membrane(state, current * (jnp.arange(compartments) == 0), g)
            return (_thomas(v), m, h, n), v[-1]

        start = tuple(jnp.full(compartments, x, currents.dtype) for x in (-65.0, 0.05, 0.6, 0.32))
        return jax.lax.scan(step, start, currents)

    def _thomas(right: Any) -> Any:
        def forward(carry: Any, d: Any) -> Any:
            c, x = carry
            w = 1.0 / (1.5 + 0.25 * c)
            after = (-0.25 * w, (d + 0.25 * x) * w)
            return after, after

        zero = jnp.zeros((), right.dtype)
        _, (cs, ds) = jax.lax.scan(forward, (zero, zero), right)

        def backward(x: Any, at: Any) -> Any:
            c, d = at
            x = d - c * x
            return x, x

        return jax.lax.scan(backward, zero, (cs, ds), reverse=True)[1]

    return run, (np.array([120.0, 36.0, 0.3]), uniform(0, 0.0, 12.0, steps))


def tridiagonal(size: int = 200) -> Made:
    """The gradient of a tridiagonal solve by two scans."""

    def loss(low: Any, middle: Any, high: Any, right: Any) -> Any:
        def forward(carry: Any, at: Any) -> Any:
            c, d = carry
            a, b, e, r = at
            w = 1.0 / (b - a * c)
            after = (e * w, (r - a * d) * w)
            return after, after

        zero = jnp.zeros((), right.dtype)
        _, (cs, ds) = jax.lax.scan(forward, (zero, zero), (low, middle, high, right))

        def backward(x: Any, at: Any) -> Any:
            c, d = at
            x = d - c * x
            return x, x

        return jnp.sum(jax.lax.scan(backward, zero, (cs, ds), reverse=True)[1] ** 2)

    made = uniform(0, -0.4, 0.4, size), uniform(1, 1.5, 2.5, size), uniform(2, -0.4, 0.4, size), normal(3, size)
    return jax.grad(loss, (0, 1, 2, 3)), made


def markov(states: int = 8, steps: int = 100) -> Made:
    """The gradient of the log likelihood of a hidden Markov model."""

    def loss(logits: Any, emitted: Any) -> Any:
        transition = jax.nn.log_softmax(logits, -1)

        def step(alpha: Any, e: Any) -> Any:
            return jax.nn.logsumexp(alpha[:, None] + transition, 0) + e, None

        return jax.nn.logsumexp(jax.lax.scan(step, jnp.zeros_like(emitted[0]), emitted)[0])

    return jax.grad(loss), (normal(0, states, states), normal(1, steps, states))


def cumulative(rows: int = 16, size: int = 100) -> Made:
    """The gradient of cumulative products, as in renderers of rays."""

    def loss(density: Any, colour: Any) -> Any:
        alpha = 1.0 - jnp.exp(-jax.nn.softplus(density))
        through = jnp.cumprod(1.0 - alpha + 1e-6, -1)
        return jnp.sum((alpha * through * colour).sum(-1) ** 2)

    return jax.grad(loss, (0, 1)), (normal(0, rows, size), normal(1, rows, size))


CARRIES, STEPS = (4, 20, 60, 320), (10, 100, 1_000, 10_000, 100_000)

GROWTH = {
    (carries, steps): Program(
        f"scan_gradient_{carries}_steps_{steps}",
        "a scan of scalars, differentiated",
        functools.partial(scalar_carries, carries, steps),
    )
    for carries in CARRIES
    for steps in STEPS
}
"""By carries and steps: how time grows. Timed where it is asked for."""

PROGRAMS = (
    Program("scan_gradient_4", "a scan of scalars, differentiated", functools.partial(scalar_carries, 4, 100)),
    Program("scan_gradient_60", "a scan of scalars, differentiated", functools.partial(scalar_carries, 60, 100)),
    Program("scan_gradient_320", "a scan of scalars, differentiated", functools.partial(scalar_carries, 320, 50)),
    Program("kalman", "filters", functools.partial(kalman, False)),
    Program("kalman_gradient", "filters", functools.partial(kalman, True)),
    Program("neuron", "neuron models", functools.partial(neuron, False)),
    Program("neuron_gradient", "neuron models", functools.partial(neuron, True)),
    Program("cable", "neuron models", cable),
    Program("tridiagonal_gradient", "solves by scans", tridiagonal),
    Program("markov_gradient", "belief updates", markov),
    Program("cumulative_gradient", "cumulative products", cumulative),
)
