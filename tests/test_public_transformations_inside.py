"""A stitched function inside other functions, transformations and programs of several devices."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from tests.light import light
from tests.public_functions import W, X, softmax
from tests.public_losses import V, loss
from tests.side_by_side import both, counted, fallbacks, kernels, same

__all__ = ["light"]

INSIDE: dict[str, Any] = {
    "jit": lambda f: jax.jit(lambda x, w: f(x, w) * 2),
    "jit twice": lambda f: jax.jit(lambda x, w: f(f(x, w), w)),
    "scan": lambda f: lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), c), x, None, length=3),
    "scan over": lambda f: lambda x, w: jax.lax.scan(lambda c, r: (c + 1, f(r, w)), 0, jnp.stack([x, V])),
    "grad of scan": lambda f: jax.grad(
        lambda x, w: jax.lax.scan(lambda c, _: (f(c * 2, w), c.max()), x, None, length=3)[0].max(), (0, 1)
    ),
    "vmap of scan": lambda f: (
        lambda x, w: jax.vmap(lambda x: jax.lax.scan(lambda c, _: (f(c, w), c.max()), x, None, length=3))(
            jnp.stack([x, V])
        )
    ),
    "fori_loop": lambda f: lambda x, w: jax.lax.fori_loop(0, 3, lambda i, c: f(c * i, w), x),
    "while_loop": lambda f: lambda x, w: jax.lax.while_loop(lambda c: c.max() > 0.5, lambda c: f(c, w), x),
    "cond": lambda f: lambda x, w: jax.lax.cond(w[0] > 0, f, lambda x, w: x * w, x, w),
    "cond of a tracer": lambda f: jax.jit(lambda x, w: jax.lax.cond(w.sum() > 9, f, lambda x, w: x * w, x, w)),
    "switch": lambda f: lambda x, w: jax.lax.switch(1, [lambda x: x, lambda x: f(x, w)], x),
    "grad of cond": lambda f: jax.grad(lambda x, w: jax.lax.cond(w[0] > 0, f, lambda x, w: x, x, w).max(), (0, 1)),
    "checkpoint": lambda f: jax.grad(lambda x, w: jax.checkpoint(lambda x: jnp.sin(f(x, w)))(x).max(), (0, 1)),
    "checkpoint all saved": lambda f: jax.grad(
        lambda x, w: jax.checkpoint(f, policy=jax.checkpoint_policies.everything_saveable)(x, w).max(), (0, 1)
    ),
    "checkpoint dots saved": lambda f: jax.grad(
        lambda x, w: jax.checkpoint(lambda x: f(x @ x.T, 1.0), policy=jax.checkpoint_policies.dots_saveable)(x).max()
    ),
    "checkpoint itself": lambda f: jax.grad(lambda x, w: jax.checkpoint(f)(x, w).max(), (0, 1)),
    "custom_vjp": lambda f: jax.grad(lambda x, w: _custom_vjp_of(f)(x, w).max(), (0, 1)),
    "custom_jvp": lambda f: lambda x, w: jax.jvp(_custom_jvp_of(f), (x,), (V,)),
    "custom_root": lambda f: jax.grad(
        lambda x, w: jnp.sum(
            jax.lax.custom_root(lambda y: y - f(x, w), x, lambda g, y: f(x, w), lambda g, y: y) * jnp.arange(4.0)
        )
    ),
    "closed over": lambda f: jax.jit(lambda x, w: jax.lax.map(lambda i: f(x + i, w), jnp.arange(3.0))),
    "named scope": lambda f: jax.jit(jax.named_scope("mine")(lambda x, w: f(x, w) + 1)),
    "stitched": lambda f: stitch_jit(lambda x, w: f(x, w).max(-1)),
    "gradient of stitched": lambda f: jax.grad(stitch_jit(lambda x, w: f(x, w).max(-1).sum()), (0, 1)),
    "stitched gradient": lambda f: stitch_jit(jax.grad(lambda x, w: f(x, w).max(), (0, 1))),
    "stitched scan": lambda f: stitch_jit(lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), c.sum()), x, length=3)),
    "eval_shape": lambda f: functools.partial(jax.eval_shape, f),
    "pure partial": lambda f: jax.jit(functools.partial(f, w=jnp.ones(4))) and f,
}


def _custom_vjp_of(f: Any) -> Any:
    g = jax.custom_vjp(lambda x, w: f(x, w))
    g.defvjp(lambda x, w: (f(x, w), (x, w)), lambda r, ct: (f(r[0], r[1]) * ct, ct.sum(0)))
    return g


def _custom_jvp_of(f: Any) -> Any:
    g = jax.custom_jvp(lambda x: f(x, W))
    g.defjvp(lambda p, t: (f(p[0], W), t[0] * f(p[0], W)))
    return g


@pytest.mark.parametrize("place", INSIDE)
def test_inside(place: str) -> None:
    both(softmax, X, W, transform=INSIDE[place], calls=1)


@pytest.mark.parametrize("place", ["jit", "scan", "cond", "while_loop", "checkpoint", "custom_vjp", "vmap of scan"])
def test_kernels_inside(place: str) -> None:
    assert kernels(INSIDE[place](stitch_jit(softmax)), X, W) >= 1


def test_stitched_inside_stitched_is_one_plan() -> None:
    """The inner function is part of the outer one: no kernel ends where it does."""
    inner = stitch_jit(softmax)
    outer = stitch_jit(lambda x, w: inner(x, w) * inner(x + 1, w).max(-1, keepdims=True))
    whole = stitch_jit(lambda x, w: softmax(x, w) * softmax(x + 1, w).max(-1, keepdims=True))
    assert kernels(outer, X, W) == kernels(whole, X, W)
    same(outer(X, W), whole(X, W))
    assert kernels(inner, X, W) == 1  # and it is still stitched by itself


def test_closing_over_a_tracer() -> None:
    def outer(jit: Any) -> Any:
        return jax.jit(lambda x, w: jit(lambda x: softmax(x, w) * w.sum())(x))

    def all_ways(jit: Any) -> Any:
        gradient = jax.grad(lambda x, w: outer(jit)(x, w).max(), (0, 1))
        batched = jax.vmap(outer(jit), (None, 0))
        return jax.jit(lambda x, w: (outer(jit)(x, w), gradient(x, w), batched(x, jnp.stack([w, w + 1]))))(X, W)

    same(all_ways(stitch_jit), all_ways(jax.jit))


def test_stitch_without_jit_transforms() -> None:
    stitched = stitch(loss)
    same(jax.grad(stitched)(X, W), jax.grad(jax.jit(loss))(X, W))
    same(jax.vmap(stitched, (0, None))(jnp.stack([X, V]), W), jax.vmap(jax.jit(loss), (0, None))(jnp.stack([X, V]), W))


@pytest.mark.slow
def test_stitch_without_jit_transforms_twice() -> None:
    stitched = stitch(loss)
    twice = [jax.jit(lambda x, w, f=f: jax.jvp(jax.grad(f, 1), (x, w), (V, W))[1])(X, W) for f in (stitched, loss)]
    same(*twice)


def test_traces_under_transformations() -> None:
    """The function's own code runs once, however it is transformed."""
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(loss)
        jitted = jit(run)
        jitted(X, W), jax.grad(jitted)(X, W)
        for transformed in (jax.hessian(jitted, 1), lambda x, w, f=jitted: jax.vmap(f, (0, None))(x[None], w)):
            jax.make_jaxpr(transformed)(X, W)
        jax.jit(lambda x, w, f=jitted: f(x, w) + jax.grad(f)(x, w).sum()).lower(X, W)
        assert counter.runs == 1


def test_a_training_loop() -> None:
    """Parameters donated, state threaded, a gradient inside: 20 steps end where those of ``jax.jit`` end."""

    def step(params: Any, momentum: Any, x: Any, y: Any) -> Any:
        def objective(p: Any) -> Any:
            return -jnp.mean(jnp.sum(y * jnp.log(softmax(x @ p["w"] + p["b"]) + 1e-6), -1))

        value, gradient = jax.value_and_grad(objective)(params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum, value

    def train(jit: Any) -> Any:
        jitted = jit(step, donate_argnums=(0, 1))
        params = {"w": jnp.full((4, 4), 0.1), "b": jnp.zeros(4)}
        momentum = jax.tree.map(jnp.zeros_like, params)
        x, labels = np.asarray(X), np.eye(3, 4, dtype=np.float32)
        for i in range(20):
            params, momentum, value = jitted(params, momentum, x + np.float32(0.1 * i), labels)
        return params, value

    same(train(stitch_jit), train(jax.jit))


DEVICES = {
    "sharded arguments": """
        x = jax.device_put(X, NamedSharding(mesh, P("i")))
        check(softmax, x, why=None)
    """,
    "in_shardings": """
        check(softmax, X, why=None, in_shardings=NamedSharding(mesh, P("i")))
    """,
    "gradient of sharded": """
        x = jax.device_put(X, NamedSharding(mesh, P("i")))
        check(lambda x: (softmax(x) ** 2).sum(), x, transform=jax.grad, why=None)
    """,
    "explicit axes": """
        with jax.set_mesh(jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))):
            check(softmax, jax.device_put(X, P("i")), why=None)
    """,
    "shard_map around": """
        inside = lambda f: jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
        check(softmax, X, transform=inside, why=None)
        check(softmax, X, transform=lambda f: jax.jit(inside(f)), why=None)
    """,
    "shard_map inside": """
        check(jax.shard_map(softmax, mesh=mesh, in_specs=P("i"), out_specs=P("i")), X, why=None)
    """,
    "with_sharding_constraint": """
        check(lambda x: softmax(jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("i")))), X, why=None)
    """,
    "another device": """
        device = jax.devices()[3]
        found = check(softmax, jax.device_put(X, device), why=None)
        assert found.devices() == {device}
        with jax.default_device(device):
            assert check(softmax, jnp.asarray(X), why=None).devices() <= {device, jax.devices()[0]}
    """,
    "mesh of one among many": """
        one = jax.make_mesh((1,), ("i",), devices=jax.devices()[2:3], axis_types=(jax.sharding.AxisType.Auto,))
        check(softmax, jax.device_put(X, NamedSharding(one, P("i"))), why=None)
    """,
}


PRELUDE = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.side_by_side import both, fallbacks
mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
X = jnp.linspace(-1.0, 2.0, 64).reshape(8, 8)
def softmax(x):
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)
def check(fun, x, why, **options):
    with fallbacks() as messages:
        found = both(fun, x, **options)
    assert (why is None) == (not messages), messages
    assert why is None or (len(messages) == 1 and why in messages[0]), messages
    return found
"""


@pytest.mark.slow
def test_several_devices() -> None:
    """One process for all cases: starting JAX costs more than any of them. More of each is in ``devices8/``."""
    cases = "".join(
        f"def case_{n}():\n{textwrap.indent(textwrap.dedent(body), '    ')}\ncase_{n}()\n"
        for n, body in enumerate(DEVICES.values())
    )
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + cases], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]


def test_export_runs_elsewhere() -> None:
    """An exported program must not refer to kernels of this process."""
    from jax import export

    with fallbacks() as messages:
        exported = export.export(stitch_jit(softmax))(X, W)
    assert len(messages) == 1 and "exported" in messages[0]
    assert "custom_call" not in exported.mlir_module()
    same(exported.call(X, W), jax.jit(softmax)(X, W))
