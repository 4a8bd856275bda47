"""Which streams become loops over tiles, by estimates for described processors."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from tests.streams.programs import attention


def plan(*shape: int, device: str = "zen3") -> Any:
    return stitch_jit(attention).plan(*(jax.ShapeDtypeStruct(shape, jnp.float32),) * 3, device=device)


def loops(plan: Any) -> int:
    return sum("a loop of" in k.source for k in plan.kernels)


@pytest.mark.parametrize("device", ["zen3", "zen4", "sapphire-rapids", "neoverse-n1"])
def test_scores_that_leave_the_cache_are_never_written(device: str) -> None:
    """Catches an estimate of XLA's time that makes nothing worth a kernel."""
    made = plan(2, 1024, 8, 64, device=device)
    assert loops(made) == 1
    assert made.bytes < made.xla_bytes / 1.4


def test_of_one_head_a_few_queries_are_left() -> None:
    """Scores of 32 and 64 queries are small: kernels of their products are measured 2.2 to 2.5 times as fast as
    ``jax.jit`` on two cores, a loop as fast (2.5). Of 128 queries the loop takes 0.9 of its time (EPYC, jax 0.12.0.1).
    """
    assert not loops(plan(1, 32, 1, 64))
    assert not loops(plan(1, 64, 1, 64))
    assert loops(plan(1, 128, 1, 64)) == 1


@pytest.mark.parametrize("device", ["h200", "h100", "a100"])
def test_attention_is_one_launch_on_a_gpu(device: str) -> None:
    """Catches arrays that are arranged before the loop or after it: inputs are read once, the output written once."""
    made = plan(2, 1024, 8, 64, device=device)
    assert (made.launches, made.bytes) == (1, made.bound_bytes)


def test_of_streams_that_share_a_product_the_best_is_taken() -> None:
    """Catches that the projection of queries takes their scores, so that these are written and the softmax is XLA's."""

    def layer(x: jax.Array, w: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return attention(jnp.einsum("btf,fhd->bthd", x, w), k, v)

    shapes = (8, 64, 256), (256, 4, 64), (8, 64, 4, 64), (8, 64, 4, 64)
    made = stitch_jit(layer).plan(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes), device="zen3")
    (source,) = [k.source for k in made.kernels if "a loop of" in k.source]
    assert "st::exp" in source


@pytest.mark.parametrize("layout", ["bkhd", "bhdk"])
def test_sums_lie_along_what_is_next_to_each_other(layout: str) -> None:
    """Catches lanes along which the sums are read and written element by element, where keys are next to each other."""
    shapes = {"bkhd": (2, 256, 4, 64), "bhdk": (2, 4, 64, 256)}

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)
        return jnp.einsum(f"bhqk,{layout}->bqhd", weights, v)

    arguments = [jax.ShapeDtypeStruct(s, jnp.float32) for s in (shapes["bkhd"], shapes["bkhd"], shapes[layout])]
    made = stitch_jit(function).plan(*arguments, device="zen3")
    (source,) = [k.source for k in made.kernels if "a loop of" in k.source]
    assert not re.search(r"kept_\w+\[j \*", source)
