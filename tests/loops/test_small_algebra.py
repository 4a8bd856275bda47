"""Loops that factorize and solve small matrices are one kernel, as right as LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch, stitch_jit

Program = Callable[..., Any]


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims)


def kalman(ys: Any, f: Any) -> Any:
    """Filter by a Cholesky factor, and sum the log-likelihood."""
    n = f.shape[0]

    def step(carry: Any, y: Any) -> Any:
        m, p, total = carry
        m, p = f @ m, f @ p @ f.T + 0.1 * jnp.eye(n)
        s, r = p[:2, :2] + 0.5 * jnp.eye(2), y - m[:2]
        factor = jnp.linalg.cholesky(s)
        z = jsl.solve_triangular(factor, r, lower=True)
        gain = jsl.cho_solve((factor, True), p[:2]).T
        return (m + gain @ r, p - gain @ s @ gain.T, total - 0.5 * z @ z - jnp.log(jnp.diag(factor)).sum()), m

    start = (jnp.zeros(n, ys.dtype), jnp.eye(n, dtype=ys.dtype), jnp.zeros((), ys.dtype))
    (_, _, total), means = lax.scan(step, start, ys)
    return total, means


def kalman_gradient(ys: Any, f: Any) -> Any:
    return jax.grad(lambda f: kalman(ys, f)[0])(f)


def smoother(means: Any, factors: Any, f: Any) -> Any:
    """Smooth backward (Rauch, Tung, Striebel) by an LU factorization in each step."""
    covariances = factors @ factors.transpose(0, 2, 1) + jnp.eye(4, dtype=f.dtype)

    def step(carry: Any, x: Any) -> Any:
        (m, p), (mf, pf) = carry, x
        predicted = f @ pf @ f.T + 0.1 * jnp.eye(4, dtype=f.dtype)
        gain = jnp.linalg.solve(predicted, f @ pf).T
        m, p = mf + gain @ (m - f @ mf), pf + gain @ (p - predicted) @ gain.T
        return (m, p), m

    return lax.scan(step, (means[-1], covariances[-1]), (means, covariances), reverse=True)[1]


def riccati(a: Any, b: Any) -> Any:
    def step(p: Any, _: Any) -> Any:
        gain = jnp.linalg.solve(jnp.eye(2, dtype=a.dtype) + b.T @ p @ b, b.T @ p @ a)
        return jnp.eye(5, dtype=a.dtype) + a.T @ p @ (a - b @ gain), None

    return lax.scan(step, jnp.eye(5, dtype=a.dtype), None, length=30)[0]


def rigid_body(w: Any) -> Any:
    inertia = jnp.asarray([[2.0, 0.1, 0], [0.1, 1.0, 0.2], [0, 0.2, 3.0]], w.dtype)

    def step(w: Any, _: Any) -> Any:
        return w + 0.01 * jnp.linalg.inv(inertia) @ -jnp.cross(w, inertia @ w), w

    return lax.scan(step, w, None, length=100)[1]


def gauss_newton(x: Any, y: Any) -> Any:
    def residual(p: Any) -> Any:
        return jnp.tanh(x @ p) - y

    def step(p: Any, _: Any) -> Any:
        j = jax.jacfwd(residual)(p)
        return p - jnp.linalg.solve(j.T @ j + jnp.eye(5, dtype=x.dtype), j.T @ residual(p)), None

    return lax.scan(step, jnp.zeros(5, x.dtype), None, length=10)[0]


def newton_until(x: Any) -> Any:
    """A loop of unknown length, with the determinant in its condition's value."""

    def value(x: Any) -> Any:
        return (x**4).sum() + (jnp.roll(x, 1) * x).sum() + (x * x).sum()

    def step(carry: Any) -> Any:
        x, _, n = carry
        h = jax.hessian(value)(x)
        return x - jnp.linalg.solve(h, jax.grad(value)(x)), jnp.abs(jnp.linalg.det(h)), n + 1

    return lax.while_loop(lambda c: (c[1] > 20) & (c[2] < 20), step, (x, jnp.asarray(1e9, x.dtype), 0))[0]


def ensemble(ys: Any, f: Any) -> Any:
    return jax.vmap(kalman, (0, None))(ys, f)


def unscented(ys: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        m, p = carry
        root = jnp.linalg.cholesky(p, upper=True)
        points = jnp.sin(jnp.concatenate([m[None], m + root, m - root]))
        mean = points.mean(0)
        s = (points - mean).T @ (points - mean) / 7 + 0.1 * jnp.eye(3, dtype=ys.dtype)
        gain = jnp.linalg.solve(s, p).T
        return (m + gain @ (y - mean), gain @ s @ gain.T / 9 + 0.1 * jnp.eye(3, dtype=ys.dtype)), m

    return lax.scan(step, (jnp.zeros(3, ys.dtype), jnp.eye(3, dtype=ys.dtype)), ys)[1]


def subspace(a: Any) -> Any:
    """Iterate a subspace, made orthogonal by Householder's reflections in each step."""

    def step(q: Any, _: Any) -> Any:
        q, r = jnp.linalg.qr(a @ q)
        return q, jnp.abs(jnp.diag(r))

    return lax.scan(step, jnp.eye(6, 3, dtype=a.dtype), None, length=12)


PROGRAMS: dict[str, tuple[Program, tuple[np.ndarray, ...]]] = {
    "kalman": (kalman, (normal(50, 2), 0.3 * normal(4, 4, seed=1))),
    "kalman gradient": (kalman_gradient, (normal(30, 2), 0.3 * normal(4, 4, seed=1))),
    "smoother": (smoother, (normal(40, 4), 0.1 * normal(40, 4, 4, seed=1), 0.3 * normal(4, 4, seed=2))),
    "riccati": (riccati, (0.3 * normal(5, 5), normal(5, 2, seed=1))),
    "rigid body": (rigid_body, (normal(3),)),
    "gauss newton": (gauss_newton, (normal(20, 5), normal(20, seed=1))),
    "newton until": (newton_until, (normal(4),)),
    "ensemble": (ensemble, (normal(6, 20, 2), 0.3 * normal(4, 4, seed=1))),
    "unscented": (unscented, (normal(30, 3),)),
    "subspace": (subspace, (normal(6, 6),)),
}


def error(found: Any, want: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True)
    return max(float(np.abs(np.asarray(a, np.float64) - b).max() / np.abs(b).max()) for a, b in pairs)


@pytest.mark.parametrize("way", ["cpu", "h200"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_are_those_of_lapack(name: str, way: str) -> None:
    """Catches a value of another step or matrix, and an order of sums that loses digits."""
    function, inputs = PROGRAMS[name]
    with jax.enable_x64(True):
        want = jax.tree.map(np.asarray, jax.jit(function)(*inputs))
    args = tuple(x.astype(np.float32) for x in inputs)
    with jax.enable_x64(True):
        near = jax.tree.map(np.asarray, jax.jit(function)(*(x.astype(np.float64) for x in args)))
    plain = jax.jit(function)(*args)
    found = stitch_jit(function)(*args) if way == "cpu" else jax.jit(stitch(function, schedule_device="h200"))(*args)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, want)
    assert error(found, near) <= 2 * error(plain, near) + 2e-6


@pytest.mark.parametrize("name", PROGRAMS)
def test_planned_for_a_gpu_they_are_at_most_three_launches(name: str) -> None:
    """Catches a call of a library that is left in a loop: thousands of launches."""
    function, inputs = PROGRAMS[name]
    plan = stitch_jit(function).plan(*(jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in inputs), device="h200")
    assert plan.launches <= 3 < plan.xla_launches


@pytest.mark.parametrize("size", [2, 7, 16])
def test_a_cpu_runs_a_filter_as_a_kernel(size: int, zen4: None) -> None:
    args = (jax.ShapeDtypeStruct((50, 2), jnp.float32), jax.ShapeDtypeStruct((size, size), jnp.float32))
    plan = stitch_jit(kalman).plan(*args)
    assert plan.launches <= 2 and plan.xla_launches > 1000
