"""Plans of functions over several devices: of each device's part, also for devices that are not here."""

from __future__ import annotations

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_stitch import stitch_jit
from tests.devices8.side_by_side import grid, line, numbers, put, softmax


def fun(x: jax.Array, w: jax.Array) -> jax.Array:
    return softmax(softmax(x @ w) * 2).sum(0)


def case_of_the_devices_in_use() -> None:
    mesh = grid()
    plan = stitch_jit(fun).plan(put(mesh, numbers(64, 8), "x"), put(mesh, numbers(8, 64), None, "y"))
    assert plan.kernels and 0 < plan.launches < plan.xla_launches
    assert {b.op for b in plan.boundaries} >= {"all-reduce", "dot"}
    assert any("communication between devices" in b.reason for b in plan.boundaries)
    # 32 rows of x, 16 columns of w, 16 sums: one device's parts, in bytes.
    assert plan.bound_bytes == 4 * (32 * 8 + 8 * 16 + 16)
    assert "each of 8 devices (mesh x=2, y=4)" in str(plan)


def case_of_options() -> None:
    plan = stitch_jit(softmax, in_shardings=NamedSharding(line(), P("i"))).plan(numbers(64, 8))
    assert plan.bound_bytes == 4 * 2 * 64 and plan.launches == 1 and plan.boundaries == ()


def case_of_types() -> None:
    x = jax.ShapeDtypeStruct((64, 8), "float32", sharding=NamedSharding(line(), P("i")))
    assert stitch_jit(softmax).plan(x).bound_bytes == 4 * 2 * 64


def case_on_one_device() -> None:
    plan = stitch_jit(softmax).plan(numbers(64, 8))
    assert plan.bound_bytes == 4 * 2 * 512 and "devices" not in str(plan)


def case_for_a_gpu_that_is_not_here() -> None:
    mesh = grid()
    arguments = put(mesh, numbers(64, 8), "x"), put(mesh, numbers(8, 64), None, "y")
    plan = stitch_jit(fun).plan(*arguments, device="h200")
    assert plan.device.name == "h200" and plan.kernels and plan.launches <= plan.xla_launches
    assert "all-reduce" in {b.op for b in plan.boundaries}
    assert plan.bound_bytes == 4 * (32 * 8 + 8 * 16 + 16)


def case_of_what_is_left_to_jit() -> None:
    def called(x: jax.Array) -> jax.Array:
        return softmax(x) + jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((64, 8), x.dtype), x)

    plan = stitch_jit(called).plan(put(line(), numbers(64, 8), "i"))
    assert plan.kernels == () and "pure_callback" in plan.boundaries[0].reason
