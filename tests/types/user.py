"""A user's file: what type checkers are to know of it is in comments, beside what is right and what is wrong.

``# reveals TEXT`` is what ``reveal_type`` shows; ``# error`` marks a mistake that has to be found in that line. All
other lines have none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

import jax_stitch
from jax_stitch import StitchedFunction, __version__, compare, plan_hlo, stitch, stitch_jit

if TYPE_CHECKING:
    from typing import reveal_type


@stitch_jit
def scaled(x: jax.Array, factor: float = 2.0) -> jax.Array:
    return x * factor


@stitch_jit(mode="now", static_argnames="axis", donate_argnums=(0,))
def summed(x: jax.Array, *, axis: int) -> tuple[jax.Array, int]:
    return jnp.sum(x, axis), axis


class Model:
    @partial(stitch_jit, static_argnums=0)
    def by_partial(self, x: jax.Array) -> jax.Array:
        return x

    @stitch_jit(static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
        return x + 1

    @staticmethod
    @stitch_jit
    def still(x: jax.Array) -> jax.Array:
        return x


x = jnp.ones((4, 8))
shape = jax.ShapeDtypeStruct((4, 8), jnp.float32)

reveal_type(scaled(x, 3.0))  # reveals Array
reveal_type(summed(x, axis=0))  # reveals tuple[Array, int]
reveal_type(Model().step(x))  # reveals Array
reveal_type(Model.still(x))  # reveals Array
reveal_type(stitch(scaled)(x))  # reveals Array
reveal_type(scaled.plan(shape, device="h200").launches)  # reveals int
reveal_type(scaled.plan(shape, planner="ilp", autotune="top3", strict=True).kernels[0].source)  # reveals str
reveal_type(scaled.status().decided)  # reveals bool
reveal_type(scaled.status().programs[0].speedup)  # reveals float | None
reveal_type(scaled.wait(timeout=1.0))  # reveals bool
reveal_type(scaled.lower(x).as_text())  # reveals str
reveal_type(scaled.trace(x))  # reveals Traced
reveal_type(scaled.clear_cache())  # reveals None
reveal_type(scaled.__name__)  # reveals str
reveal_type(compare(scaled, x, devices=["h200"]).speedup)  # reveals float
reveal_type(plan_hlo("f.txt", device="h200").bytes)  # reveals int
reveal_type(__version__.split())  # reveals list[str]

kept: StitchedFunction[[jax.Array, float], jax.Array] = scaled

stitch_jit(scaled, mode="nwo")  # error
stitch_jit(scaled, mdoe="now")  # error
stitch_jit(scaled, planner="beem")  # error
stitch_jit(scaled, autotune="top4")  # error
stitch_jit(scaled, strict="yes")  # error
stitch_jit(scaled, donate_args=(0,))  # error
stitch_jit("now")  # error
stitch(scaled, planer="beam")  # error
scaled("text")  # error
scaled(x, 2.0, 3)  # error
scaled(x, fctor=2.0)  # error
summed(x, 0)  # error
scaled.plna(shape)  # error
scaled.plan(shape, planner="bean")  # error
scaled.plan(shape, device=200)  # error
scaled.wait("long")  # error
print(scaled.status().settle)  # error
print(scaled.plan(shape).launchs)  # error
print(scaled.plan(shape).kernels[0].sorce)  # error
Model().step(x, x)  # error
Model().step("text")  # error
plan_hlo("f.txt", planner="none of them")  # error


@stitch_jit(mode="later")  # error
def late(x: jax.Array) -> jax.Array:
    return x


print(jax_stitch.stich_jit)  # error
