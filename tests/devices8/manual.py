"""Functions inside the user's ``shard_map``, and ``shard_map`` inside stitched functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.devices8.runner import slow
from tests.devices8.side_by_side import compare, grid, line, numbers, put, softmax

ROWS = P("i")


def around(*, rows: Any = ROWS, out: Any = ROWS, **options: Any) -> Callable[[Any], Any]:
    """``shard_map`` over the line, under ``jax.jit``."""
    specs = {"in_specs": rows, "out_specs": out}
    return lambda f: jax.jit(jax.shard_map(f, mesh=line(), **specs, **options))


def case_without_communication() -> None:
    compare(softmax, put(line(), numbers(64, 8), "i"), transform=around())
    compare(
        softmax, numbers(64, 8), transform=lambda f: jax.shard_map(f, mesh=line(), in_specs=P("i"), out_specs=P("i"))
    )


@slow
def case_without_communication_and_without_placing() -> None:
    compare(softmax, numbers(64, 8), transform=around())
    compare(softmax, numbers(64, 8), transform=around(check_vma=False))


def case_sums_over_devices() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return softmax(x) - lax.psum(softmax(x), "i") + lax.pmean(x, "i")

    compare(fun, numbers(64, 8), transform=around())
    compare(fun, numbers(64, 8), transform=around(check_vma=False))


def case_a_result_that_does_not_vary() -> None:
    compare(lambda x: lax.psum(softmax(x), "i"), numbers(64, 8), transform=around(out=P()))


@slow
def case_an_argument_that_does_not_vary() -> None:
    compare(
        lambda x, w: softmax(x * w) - lax.psum(softmax(x), "i"),
        numbers(64, 8),
        numbers(8),
        transform=around(rows=(ROWS, P())),
    )


def case_the_number_of_the_device() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return softmax(x) * lax.axis_index("x") + lax.axis_index("y") + lax.axis_size("y")

    mesh = grid()
    inside = {"mesh": mesh, "in_specs": P(("x", "y")), "out_specs": P(("x", "y"))}
    compare(fun, numbers(64, 8), transform=lambda f: jax.jit(jax.shard_map(f, **inside)))


def every_collective(a: jax.Array) -> jax.Array:
    ring = [(i, (i + 1) % 4) for i in range(4)]
    s = softmax(a)
    return (
        lax.ppermute(s, "y", ring)
        + lax.ppermute(s, "x", [(0, 1)])
        + lax.psum_scatter(lax.all_gather(s, "x", tiled=True), "x", tiled=True)
        + lax.all_to_all(lax.all_to_all(s, "y", 0, 1, tiled=True), "y", 1, 0, tiled=True)
        + lax.all_gather(s, ("x", "y")).sum(0)
        + lax.pmax(s, ("x", "y"))
        + lax.pmin(s, "x")
        + lax.psum(s, "y", axis_index_groups=[[0, 3], [1, 2]])
    )


def case_every_collective() -> None:
    mesh = grid()
    inside = {"mesh": mesh, "in_specs": P("x", "y"), "out_specs": P("x", "y"), "check_vma": False}
    text = compare(every_collective, numbers(64, 16), transform=lambda f: jax.jit(jax.shard_map(f, **inside)))
    for name in ("all_reduce", "all_gather", "reduce_scatter", "collective_permute", "all_to_all"):
        assert f"stablehlo.{name}" in text, name


@slow
def case_every_collective_of_an_inner_shard_map() -> None:
    mapped = jax.shard_map(every_collective, mesh=grid(), in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    compare(lambda x: jax.nn.gelu(mapped(softmax(x))) * 2, numbers(64, 16))


def case_gradients() -> None:
    compare(
        lambda x: lax.psum((softmax(x) ** 2).sum(), "i"),
        numbers(64, 8),
        transform=lambda f: around()(jax.grad(f)),
    )


def gradient_outside(f: Any) -> Any:
    return jax.grad(lambda x: (around()(f)(x) ** 2).sum())


@slow
def case_more_gradients() -> None:
    x = numbers(64, 8)
    compare(lambda x: (softmax(x) ** 2).sum(), x, transform=lambda f: around()(jax.grad(f)))
    compare(lambda x: softmax(x) - lax.psum(softmax(x), "i"), x, transform=lambda f: jax.jit(gradient_outside(f)))
    compare(lambda x: softmax(x) - lax.psum(softmax(x), "i"), put(line(), x, "i"), transform=gradient_outside)


@slow
def case_gradient_of_an_inner_shard_map() -> None:
    def fun(a: jax.Array) -> jax.Array:
        return softmax(a) - lax.psum(softmax(a), "x") + (lax.all_gather(softmax(a), "y", tiled=True) ** 2).mean()

    mapped = jax.shard_map(fun, mesh=grid(), in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    compare(jax.grad(lambda x: (mapped(softmax(x)) ** 2).sum()), numbers(64, 16))


@slow
def case_vmap_and_loops() -> None:
    x = numbers(64, 8)
    compare(lambda x: softmax(x) - lax.psum(x, "i"), x, transform=lambda f: around()(jax.vmap(f)))

    def loop(f: Any) -> Any:
        return lambda x: lax.scan(lambda c, _: (f(c) + lax.pmean(c, "i"), None), x, None, length=3)[0]

    compare(softmax, x, transform=lambda f: around()(loop(f)))
    compare(lambda x: loop(softmax)(x), x, transform=around(), kernels=0)


def case_large_constants() -> None:
    table = jnp.linspace(0.0, 1.0, 8 * 512).reshape(8, 512)
    compare(lambda x: softmax(x * table) - lax.psum(x, "i"), numbers(64, 512), transform=around())


@slow
def case_keys() -> None:
    keys = jax.random.split(jax.random.key(1), 16)
    compare(lambda k: softmax(jax.vmap(lambda k: jax.random.normal(k, (8,)))(k)), keys, transform=around())


def case_axes_left_to_xla() -> None:
    inside = {"mesh": grid(), "in_specs": P("x"), "out_specs": P("x"), "axis_names": {"x"}}
    why = "leaves 'y' of its mesh's axes to XLA"
    compare(softmax, numbers(64, 8), transform=lambda f: jax.jit(jax.shard_map(f, **inside)), fallback=why)


def case_a_mesh_of_one_device() -> None:
    one = jax.make_mesh((1,), ("i",), devices=jax.devices()[2:3], axis_types=(jax.sharding.AxisType.Auto,))
    inside = {"mesh": one, "in_specs": P("i"), "out_specs": P("i")}
    compare(softmax, numbers(8, 8), transform=lambda f: jax.jit(jax.shard_map(f, **inside)))
