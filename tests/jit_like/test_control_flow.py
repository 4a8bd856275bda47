"""Jitted functions in JAX's control flow and under ``jax.checkpoint``, and these inside jitted functions."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals

from jax_stitch import stitch_jit
from tests.jit_like.outcomes import SQUARE, Program, V, W, X, raises, returns, softmax
from tests.light import light
from tests.side_by_side import kernels

__all__ = ["light"]


def step(carry: Any, row: Any) -> Any:
    return jnp.tanh(carry + row), carry.sum()


def small(x: Any) -> Any:
    return jnp.sin(x) * 2.0


def counted_down(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, small(c[1])), (3, x))[1]


def many_branches(jit: Any) -> Any:
    f = jit(lambda i, x: lax.switch(i, [small, jnp.cos, lambda x: x], x))
    return [f(i, X) for i in range(-1, 4)]


FLOW: dict[str, Program] = {
    "scan of a jitted step": lambda jit: lax.scan(jit(step), W, X),
    "scan inside": lambda jit: jit(lambda c, xs: lax.scan(step, c, xs))(W, X),
    "scan on both sides": lambda jit: jit(lambda c, xs: lax.scan(jit(step), c, xs))(W, X),
    "scan without inputs": lambda jit: jit(lambda c: lax.scan(lambda c, _: (small(c), None), c, length=3))(W),
    "scan of none": lambda jit: jit(lambda c, xs: lax.scan(step, c, xs))(W, X[:0]),
    "scan reversed": lambda jit: jit(lambda c, xs: lax.scan(step, c, xs, reverse=True))(W, X),
    "scan unrolled": lambda jit: jit(lambda c, xs: lax.scan(step, c, xs, unroll=3))(W, X),
    "scan over a tree": lambda jit: jit(lambda c, t: lax.scan(lambda c, t: (c + t["a"] * t["b"], t["b"]), c, t))(
        W, {"a": X, "b": V}
    ),
    "scan with integers": lambda jit: jit(lambda x: lax.scan(lambda c, r: (c + 1, r * c), 0, x))(X),
    "scan of keys": lambda jit: jit(lambda ks: lax.scan(lambda c, k: (c + jax.random.normal(k), k), 0.0, ks)[0])(
        jax.random.split(jax.random.key(1), 3)
    ),
    "scan in a scan": lambda jit: jit(
        lambda x: lax.scan(lambda c, r: (lax.scan(lambda d, e: (d + e, d), c, r)[0], c), 0.0, x)
    )(X),
    "gradient of a scan": lambda jit: jax.grad(lambda c: lax.scan(jit(step), c, X)[0].sum())(W),
    "gradient of a scan inside": lambda jit: jit(jax.grad(lambda c: lax.scan(step, c, X)[0].sum()))(W),
    "jvp of a scan": lambda jit: jax.jvp(jit(lambda c: lax.scan(step, c, X)[0]), (W,), (W,)),
    "vmap of a scan": lambda jit: jax.vmap(jit(lambda c: lax.scan(step, c, X)[0]))(jnp.stack([W, -W])),
    "associative_scan": lambda jit: jit(lambda x: lax.associative_scan(jnp.add, x, axis=1))(X),
    "associative_scan of a jitted": lambda jit: lax.associative_scan(jit(jnp.multiply), X),
    "map": lambda jit: jit(lambda x: lax.map(small, x))(X),
    "map in batches": lambda jit: jit(lambda x: lax.map(small, x, batch_size=2))(X),
    "fori_loop": lambda jit: jit(lambda x: lax.fori_loop(0, 3, lambda i, c: small(c) + i, x))(X),
    "fori_loop of a jitted body": lambda jit: lax.fori_loop(0, 3, jit(lambda i, c: small(c) + i), X),
    "fori_loop to a tracer": lambda jit: jit(lambda n, x: lax.fori_loop(0, n, lambda i, c: small(c), x))(3, X),
    "fori_loop of none": lambda jit: jit(lambda x: lax.fori_loop(3, 0, lambda i, c: small(c), x))(X),
    "while_loop": lambda jit: jit(counted_down)(X),
    "while_loop of a jitted body": lambda jit: lax.while_loop(jit(lambda c: c.sum() > 1), jit(lambda c: c / 2), X),
    "while_loop that never runs": lambda jit: jit(lambda x: lax.while_loop(lambda c: False, small, x))(X),
    "while_loop over rows": lambda jit: jax.vmap(jit(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2, x)))(
        jnp.arange(1.0, 5.0)
    ),
    "jvp of a while_loop": lambda jit: jax.jvp(jit(counted_down), (X,), (V,)),
    "cond": lambda jit: [f := jit(lambda p, x: lax.cond(p, small, jnp.cos, x)), f(True, X), f(False, X)][1:],
    "cond of jitted branches": lambda jit: lax.cond(True, jit(small), jit(jnp.cos), X),
    "cond over rows": lambda jit: jax.vmap(jit(lambda p, x: lax.cond(p, small, jnp.cos, x)))(W > 1, W),
    "cond with operands": lambda jit: jit(lambda x: lax.cond(x.sum() > 0, lambda x, w: x * w, jnp.add, x, W))(X),
    "gradient of a cond": lambda jit: jax.grad(lambda x: lax.cond(True, jit(small), jit(jnp.cos), x).sum())(X),
    "switch": many_branches,
    "select": lambda jit: jit(lambda x: lax.select(x > 0, small(x), x))(X),
    "platform_dependent": lambda jit: jit(lambda x: lax.platform_dependent(x, cpu=small, default=jnp.cos))(X),
    "custom_root": lambda jit: jax.grad(
        jit(lambda a: lax.custom_root(lambda x: x * x - a, 1.0, _newton, lambda g, y: y / g(1.0)))
    )(2.0),
    "custom_linear_solve": lambda jit: jax.grad(jit(lambda b: jnp.sum(_solve(b) ** 2)))(W),
    "cumulative": lambda jit: jit(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x)))(X),
    "reduce": lambda jit: jit(lambda x: lax.reduce(x, 0.0, lax.max, (1,)))(X),
    "reduce_window": lambda jit: jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"))(X),
    "optimization_barrier": lambda jit: jit(lambda x: small(lax.optimization_barrier(small(x))))(X),
    "stop in the middle": lambda jit: jit(lambda x: jax.block_until_ready(small(x)))(X),
}


def _newton(f: Any, x: Any) -> Any:
    return lax.fori_loop(0, 20, lambda _, x: x - f(x) / jax.grad(f)(x), x)


def _solve(b: Any) -> Any:
    return lax.custom_linear_solve(
        lambda x: SQUARE @ x,
        b,
        solve=lambda _, b: jnp.linalg.solve(SQUARE, b),
        transpose_solve=lambda _, b: jnp.linalg.solve(SQUARE.T, b),
    )


@pytest.mark.parametrize("case", FLOW)
def test_control_flow(case: str) -> None:
    returns(FLOW[case])


FAILURES: dict[str, Program] = {
    "carry of another type": lambda jit: jit(lambda x: lax.scan(lambda c, r: (c.sum(), r), x, x))(X),
    "branches of unlike shapes": lambda jit: jit(lambda x: lax.cond(True, jnp.sum, jnp.sin, x))(X),
    "a condition that is no scalar": lambda jit: jit(lambda x: lax.while_loop(lambda c: c > 0, small, x))(X),
    "lengths that differ": lambda jit: jit(lambda x: lax.scan(step, W, (x, x[:2])))(X),
    "gradient of fori_loop to a tracer": lambda jit: jax.grad(
        jit(lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x, x))
    )(2.0, 3),
    "an error in a body": lambda jit: jit(lambda x: lax.scan(lambda c, r: ({}["mine"], r), 0.0, x))(X),
}


@pytest.mark.parametrize("case", FAILURES)
def test_errors(case: str) -> None:
    raises(FAILURES[case])


# jax.checkpoint.


def network(x: Any) -> Any:
    h = checkpoint_name(softmax(x @ SQUARE), "hidden")
    return jnp.sum(jnp.sin(checkpoint_name(h @ SQUARE, "out")))


save = jax.checkpoint_policies
POLICIES: dict[str, Any] = {
    "none": None,
    "everything": save.everything_saveable,
    "nothing": save.nothing_saveable,
    "dots": save.dots_saveable,
    "dots without batch": save.dots_with_no_batch_dims_saveable,
    "names": save.save_only_these_names("hidden"),
    "other names": save.save_anything_except_these_names("hidden"),
    "any names but": save.save_any_names_but_these("hidden"),
    "both": save.save_from_both_policies(save.dots_saveable, save.save_only_these_names("hidden")),
    "offload": save.save_and_offload_only_these_names(
        names_which_can_be_saved=["out"],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_outside(policy: str) -> None:
    """A policy must see into a stitched function: what it names is saved, and nothing else."""

    def saved(jit: Any) -> list[str]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            print_saved_residuals(jax.checkpoint(jit(network), policy=POLICIES[policy]), X)
        return [line.split()[0] for line in printed.getvalue().splitlines()]

    assert saved(stitch_jit) == saved(jax.jit)


@pytest.mark.parametrize("policy", ["names", "dots", "offload"])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_gradients_under_policies(policy: str, where: str) -> None:
    remat = functools.partial(jax.checkpoint, policy=POLICIES[policy])
    if where == "outside":
        returns(lambda jit: jax.grad(remat(jit(network)))(X))
    else:
        returns(lambda jit: jax.grad(jit(remat(network)))(X))


def test_a_checkpointed_function_is_stitched() -> None:
    assert kernels(jax.grad(jax.checkpoint(stitch_jit(network), policy=POLICIES["names"])), X) >= 2
    assert kernels(jax.grad(stitch_jit(jax.checkpoint(network))), X) >= 1  # products and all
