"""More training steps over eight devices: several in a row, by hand, and in parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.devices8.runner import slow
from tests.devices8.side_by_side import compare, grid, line, numbers
from tests.devices8.training import BATCH, WIDTH, adam, block, data, loss, parameters, placed, several_steps, step


@slow
def case_several_steps_in_place() -> None:
    mesh = line()
    p, moments = placed(mesh, dict.fromkeys(parameters(), P()))
    compare(step, p, moments, *data(mesh, "i"), transform=several_steps, donate_argnums=(0, 1))


@slow
def case_several_steps_fully_sharded() -> None:
    mesh = line()
    p, moments = placed(mesh, {"scale": P("i"), "up": P(None, "i"), "bias": P("i"), "down": P("i")})
    out = jax.tree.map(lambda w: w.sharding, (p, moments))
    compare(step, p, moments, *data(mesh, "i"), transform=several_steps, out_shardings=(*out, None, None))


@slow
def case_tensor_parallel_inference() -> None:
    mesh = grid()
    p, _ = placed(mesh, {"scale": P(), "up": P(None, "y"), "bias": P("y"), "down": P("y", None)})
    compare(block, p, data(mesh, "x")[0])


@slow
def case_data_parallel_from_one_device() -> None:
    mesh = line()
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("i"))
    p = parameters()
    zeros = jax.tree.map(jnp.zeros_like, p)
    target = jax.nn.softmax(numbers(BATCH, WIDTH, scale=3))
    shardings = (replicated, replicated, rows, rows)
    out = (replicated, replicated, replicated, replicated)
    compare(step, p, (zeros, zeros), numbers(BATCH, WIDTH), target, in_shardings=shardings, out_shardings=out)


@slow
def case_by_hand() -> None:
    """Data parallelism that the user wrote with ``shard_map``, stitched outside and inside."""
    mesh = line()
    p, moments = placed(mesh, dict.fromkeys(parameters(), P()))

    def one_device(p: Any, moments: Any, x: jax.Array, target: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(p, x, target)
        value, grads = lax.pmean((value, grads), "i")
        p, moments = adam(p, moments, grads)
        return p, moments, value

    specs = {"in_specs": (P(), P(), P("i"), P("i")), "out_specs": P(), "check_vma": False}
    compare(jax.shard_map(one_device, mesh=mesh, **specs), p, moments, *data(mesh, "i"))
    compare(one_device, p, moments, *data(mesh, "i"), transform=lambda f: jax.jit(jax.shard_map(f, mesh=mesh, **specs)))


@slow
def case_forward_and_backward_apart() -> None:
    mesh = line()
    p, _ = placed(mesh, dict.fromkeys(parameters(), P()))
    compare(loss, p, *data(mesh, "i"), transform=lambda f: jax.value_and_grad(f))
    compare(loss, p, *data(mesh, "i"), transform=lambda f: jax.jit(jax.value_and_grad(f)))
