"""Meshes of explicit axes, where types say how values are split."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from tests.devices8.runner import slow
from tests.devices8.side_by_side import compare, grid, numbers, put, softmax


@slow
def case_without_a_context() -> None:
    compare(softmax, put(grid(AxisType.Explicit), numbers(64, 8), "x"))


def case_products() -> None:
    with jax.set_mesh(grid(AxisType.Explicit)):
        x, w = jax.device_put(numbers(64, 8), P("x")), jax.device_put(numbers(8, 16), P(None, "y"))
        compare(lambda x, w: softmax(jnp.einsum("ij,jk->ik", x, w, out_sharding=P("y"))), x, w)


@slow
def case_products_by_themselves() -> None:
    with jax.set_mesh(grid(AxisType.Explicit)):
        x, w = jax.device_put(numbers(64, 8), P("x")), jax.device_put(numbers(8, 16), P(None, "y"))
        compare(lambda x, w: softmax(x @ w) + x.sum(), x, w)
        compare(lambda x, w: (softmax(x @ w) ** 2).sum(), x, w, transform=lambda f: jax.grad(f, (0, 1)))
        compare(lambda x, w: (softmax(x @ w) ** 2).sum(), x, w, transform=lambda f: jax.jit(jax.grad(f, (0, 1))))


@slow
def case_values_of_an_outer_function() -> None:
    """Types say where they lie, whatever computed them."""
    with jax.set_mesh(grid(AxisType.Explicit)):
        x = jax.device_put(numbers(64, 8), P("x"))

        def loop(f: Any) -> Any:
            return jax.jit(lambda x: lax.scan(lambda c, _: (f(c), c.sum()), jnp.sin(x), None, length=3))

        compare(softmax, x, transform=loop)
        compare(softmax, x, transform=lambda f: jax.jit(lambda x: f(jnp.sin(x) + 1)))


def case_resharding() -> None:
    with jax.set_mesh(grid(AxisType.Explicit)):
        x = jax.device_put(numbers(64, 8), P("x"))
        compare(lambda x: jax.sharding.reshard(softmax(x), P(None, "y")), x)
        compare(softmax, numbers(64, 8))


def case_shard_map() -> None:
    with jax.set_mesh(grid(AxisType.Explicit)):
        x = jax.device_put(numbers(64, 8), P("x", "y"))
        specs = {"in_specs": P("x", "y"), "out_specs": P("x", "y")}
        mapped = jax.shard_map(lambda a: softmax(a) - lax.psum(a, "x"), **specs)
        compare(lambda x: mapped(softmax(x)), x)
        compare(lambda a: softmax(a) - lax.psum(a, "x"), x, transform=lambda f: jax.shard_map(f, **specs))


@slow
def case_vmap() -> None:
    with jax.set_mesh(grid(AxisType.Explicit)):
        compare(softmax, jax.device_put(numbers(8, 8, 8), P("x")), transform=jax.vmap)
        compare(softmax, jax.device_put(numbers(8, 8, 8), P(None, "x")), transform=lambda f: jax.vmap(f, 1, 1))


def case_automatic_axes_of_a_context() -> None:
    with jax.set_mesh(grid()):
        compare(lambda x: softmax(lax.with_sharding_constraint(x, P("x"))), numbers(64, 8))


@slow
def case_axes_of_both_kinds() -> None:
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    with jax.set_mesh(mesh):
        compare(
            softmax,
            jax.device_put(numbers(64, 8), P(None, "y")),
            fallback="axes that are explicit and axes that are not",
        )
