"""Arguments and results split over devices by ``jax.jit``'s own means, on axes that XLA's partitioner deals with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_stitch import stitch_jit
from tests.devices8.runner import slow
from tests.devices8.side_by_side import compare, grid, line, numbers, put, softmax
from tests.side_by_side import both_raise, same


def case_rows() -> None:
    compare(softmax, put(line(), numbers(64, 8), "i"))


def case_columns_need_communication() -> None:
    text = compare(lambda x: softmax(softmax(x) * 2), put(line(), numbers(64, 128), None, "i"), kernels=0)
    assert text.count("stablehlo.all_reduce") >= 4


@slow
def case_two_axes() -> None:
    compare(softmax, put(grid(), numbers(64, 128), "x", "y"))


@slow
def case_one_dimension_over_both_axes() -> None:
    for spec in ((("x", "y"),), (("y", "x"),)):
        compare(lambda x: (softmax(x), x.cumsum(0)[-1] + softmax(x)[0]), put(grid(), numbers(64, 8), *spec))


def case_replicated() -> None:
    compare(softmax, put(line(), numbers(64, 8)))


def case_some_arguments_are_anywhere() -> None:
    x = put(line(), numbers(64, 8), "i")
    compare(lambda x, y, z: softmax(x) * y + z, x, numbers(8), 2.0)
    compare(lambda x, y: softmax(x) * y, x, np.arange(8.0, dtype=np.float32))


def case_in_shardings() -> None:
    compare(softmax, numbers(64, 8), in_shardings=NamedSharding(line(), P("i")))


def case_another_device() -> None:
    device = jax.devices()[3]
    compare(softmax, jax.device_put(numbers(8, 8), device))
    with jax.default_device(device):
        compare(softmax, numbers(8, 8))


@slow
def case_in_shardings_of_a_tree() -> None:
    compare(lambda d: softmax(d["a"] + d["b"]), {"a": numbers(64, 8), "b": numbers(8)}, in_shardings=(
        {"a": NamedSharding(line(), P("i")), "b": NamedSharding(line(), P())},
    ))  # fmt: skip


def case_out_shardings() -> None:
    mesh = line()
    out = {"replicated": NamedSharding(mesh, P()), "columns": NamedSharding(mesh, P(None, "i")), "free": None}
    compare(
        lambda x: {"replicated": softmax(x), "columns": softmax(x) + 1, "free": softmax(x).sum(0)},
        put(mesh, numbers(64, 8), "i"),
        out_shardings=out,
    )


@slow
def case_out_shardings_decide_the_communication() -> None:
    """Each device computes its columns of a result that is wanted in columns, from rows that it is sent."""
    mesh = line()
    text = compare(
        lambda x: softmax(softmax(x) @ softmax(x).T),
        put(mesh, numbers(64, 16), "i"),
        out_shardings=NamedSharding(mesh, P(None, "i")),
    )
    inside = text.split("sdy.manual_computation")[1]
    assert 'out_shardings=[<@mesh, [{}, {"i"}]>]' in inside, inside[:500]


def case_constraints_inside() -> None:
    mesh = grid()

    def fun(x: jax.Array) -> Any:
        y = softmax(lax.with_sharding_constraint(x, NamedSharding(mesh, P("x"))))
        z = lax.with_sharding_constraint(softmax(y.T), NamedSharding(mesh, P("y", "x")))
        return y, z

    compare(fun, numbers(64, 32))


@slow
def case_uneven_inside() -> None:
    mesh = line()

    def fun(x: jax.Array) -> Any:
        odd = lax.with_sharding_constraint(x[:-3] * 2, NamedSharding(mesh, P("i")))
        return jnp.sort(odd, 0) + softmax(x)[:-3], odd.sum(), jnp.roll(odd, 1, 0), jnp.argmax(odd)

    compare(fun, put(mesh, numbers(64, 8), "i"))
    compare(lambda x: softmax(x[:13]) + x[1:14], put(mesh, numbers(16, 8), "i"))


@slow
def case_reductions_other_than_sums() -> None:
    def fun(x: jax.Array) -> Any:
        y = softmax(x)
        return y.max(0), y.min(0), y.prod(0), (x > 0).all(0), (x > 0).any(0), jnp.argmax(x, 0)

    compare(fun, put(line(), numbers(64, 8) + 1, "i"))


@slow
def case_element_types() -> None:
    for dtype in (jnp.bfloat16, jnp.float16, jnp.int32, jnp.complex64):
        compare(lambda x: x * x + x.sum(0), put(line(), numbers(64, 8, scale=4).astype(dtype), "i"), kernels=0)
    compare(lambda x: softmax(x) + x.sum(0), put(line(), numbers(64, 8).astype(jnp.bfloat16), "i"))
    with jax.enable_x64(True):
        compare(lambda x: softmax(x) + x.sum(0), put(line(), numbers(64, 8).astype(jnp.float64), "i"))


def case_keys() -> None:
    keys = put(line(), jax.random.split(jax.random.key(0), 16), "i")
    compare(lambda keys: jax.vmap(lambda k: softmax(jax.random.normal(k, (4,))))(keys), keys)


@slow
def case_one_of_many_keys() -> None:
    keys = put(line(), jax.random.split(jax.random.key(0), 16), "i")
    compare(lambda keys: (keys, softmax(jax.random.uniform(keys[3], (64, 4)))), keys, kernels=0)


def case_loops_and_branches() -> None:
    def loop(x: jax.Array) -> Any:
        return lax.scan(lambda c, _: (softmax(c) @ jnp.eye(8) + c.mean(0), c.sum()), x, None, length=5)

    def branch(x: jax.Array) -> jax.Array:
        return lax.cond(x.sum() > 0, lambda x: softmax(x) + x.mean(0), lambda x: softmax(x.T).T, x)

    x = put(line(), numbers(64, 8), "i")
    compare(loop, x, kernels=0)
    compare(branch, x, kernels=0)


@slow
def case_library_calls() -> None:
    def fun(x: jax.Array) -> Any:
        square = x.T @ x + jnp.eye(8)
        return softmax(x), jnp.linalg.cholesky(square), jnp.fft.fft(x).real, jnp.sort(x, 0), lax.top_k(x[:, 0], 3)

    compare(fun, put(line(), numbers(64, 8), "i"))


def case_donated() -> None:
    mesh = line()
    for jit_options in ({"donate_argnums": 0}, {"donate_argnames": "x"}):
        compare(lambda x: softmax(x) * 2, put(mesh, numbers(64, 8), "i"), **jit_options)


def case_arguments_of_other_kinds() -> None:
    x = put(line(), numbers(64, 8), "i")
    compare(
        lambda x, n, *, k: softmax(x) * n + k, x, 2, transform=lambda f: lambda x, n: f(x, n, k=x), static_argnums=1
    )
    compare(lambda x, unused, none: softmax(x), x, x, None)
    big = numbers(64, 64)
    compare(lambda x: softmax(x) + big[:, :8], x)


@slow
def case_nested() -> None:
    """A stitched function inside a function under ``jax.jit``, on arguments of the outer one."""
    x = put(line(), numbers(64, 8), "i")
    compare(softmax, x, transform=lambda f: jax.jit(lambda x: f(x) * 2))
    compare(lambda x: (softmax(x) ** 2).sum(), x, transform=lambda f: jax.jit(jax.grad(f)), kernels=2)
    compare(softmax, x, transform=lambda f: jax.jit(lambda x: f(f(x))), kernels=2)


def case_unknown_until_later() -> None:
    mesh = line()
    x = put(mesh, numbers(64, 8), "i")
    why = "how XLA will split its argument 0 (float32[64,8]) over the devices is not known when it is lowered"
    compare(softmax, x, transform=lambda f: jax.jit(lambda x: f(jnp.sin(x))), fallback=why)
    constrained = NamedSharding(mesh, P("i"))
    compare(softmax, x, transform=lambda f: jax.jit(lambda x: f(lax.with_sharding_constraint(x * 2, constrained))))


@slow
def case_gradient() -> None:
    compare(lambda x: (softmax(x) ** 2).sum(), put(line(), numbers(64, 8), "i"), transform=jax.grad)


@slow
def case_transformed() -> None:
    x = put(line(), numbers(64, 8), "i")
    compare(lambda x: (softmax(x) ** 2).sum(), x, transform=jax.value_and_grad)
    compare(softmax, x, transform=jax.vmap)
    compare(softmax, x, transform=lambda f: lambda x: jax.jvp(f, (x,), (x,)))
    compare(lambda x: (softmax(x) ** 2).sum(-1), x, transform=lambda f: jax.vmap(jax.grad(f)))


@slow
def case_two_meshes() -> None:
    compare(
        lambda x, y: (softmax(x), softmax(x + y)), put(line(), numbers(64, 8), "i"), put(grid(), numbers(64, 8), "x")
    )


def case_one_function_on_many_meshes() -> None:
    """Also where the devices are in another order, or only some of them; and from several threads at once."""
    devices = jax.devices()
    meshes = [Mesh(np.array(chosen), ("i",)) for chosen in (devices[::-1], devices[4:], devices[5:6])]
    stitched, plain = (
        stitch_jit(lambda x: softmax(x) - softmax(x).sum(0)),
        jax.jit(lambda x: softmax(x) - softmax(x).sum(0)),
    )
    for mesh in meshes:
        x = put(mesh, numbers(64, 8), "i")
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(stitched, [x] * 4):
                same(found, plain(x))
                assert found.sharding == plain(x).sharding


def case_errors() -> None:
    rows = NamedSharding(line(), P("i"))
    other = Mesh(np.array(jax.devices()[4:]), ("i",))
    both_raise(lambda jit: jit(softmax, in_shardings=rows)(numbers(63, 8)))
    both_raise(lambda jit: jit(softmax, out_shardings=rows)(numbers(63, 8)))
    both_raise(lambda jit: jit(softmax, in_shardings=rows)(put(line(), numbers(64, 8), None, "i")))
    both_raise(lambda jit: jit(softmax, out_shardings=NamedSharding(line(), P("i", None, None)))(numbers(64, 8)))
    apart = put(line(), numbers(64, 8), "i"), put(other, numbers(64, 8), "i")
    both_raise(lambda jit: jit(lambda a, b: softmax(a + b))(*apart))


def case_callbacks_run_plain() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return softmax(x) + jax.pure_callback(lambda v: np.asarray(v), jax.ShapeDtypeStruct((64, 8), x.dtype), x)

    compare(fun, put(line(), numbers(64, 8), "i"), fallback="pure_callback")


def case_an_instruction_without_a_rule_is_named() -> None:
    from jax_stitch.frontend.replay.rules import RULES

    rule = RULES.pop("all-reduce")
    try:
        compare(lambda x: softmax(x) - softmax(x).sum(0), put(line(), numbers(64, 8), "i"), fallback="all-reduce")
    finally:
        RULES["all-reduce"] = rule
