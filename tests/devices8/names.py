"""Names of kernels on several devices. Each case catches ``ffi_call`` in their place, in HLO and in profiles."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jax_stitch import stitch, stitch_jit
from tests.devices8.side_by_side import grid, line, numbers, put, softmax
from tests.side_by_side import KERNEL


def now(fun: Callable[..., Any]) -> Any:
    return stitch_jit(fun, mode="now")


def over_devices(fun: Callable[..., Any]) -> Any:
    return jax.shard_map(fun, mesh=line(), in_specs=P("i"), out_specs=P("i"))


def summed(x: jax.Array) -> jax.Array:
    return softmax(softmax(x) * 3.0) - lax.psum(softmax(x), "i")


def check(function: Any, *args: Any) -> None:
    """Look for the kernels of a function in its HLO."""
    lines = [line for line in function.lower(*args).compile().as_text().splitlines() if KERNEL in line]
    names = [line.strip().removeprefix("ROOT ").split(" ")[0] for line in lines]
    assert names and all(name.startswith("%stitch_") and "_py_" in name for name in names), names


def case_inside() -> None:
    check(jax.jit(over_devices(now(summed))), numbers(64, 8))


def case_inside_by_stitch() -> None:
    check(jax.jit(over_devices(stitch(summed))), numbers(64, 8))


def case_around() -> None:
    check(now(over_devices(summed)), numbers(64, 8))


def case_sharded_arguments() -> None:
    check(now(lambda x: softmax(softmax(x).T)), put(line(), numbers(64, 8), "i"))


def case_explicit_axes() -> None:
    check(now(lambda x: softmax(softmax(x) * 3.0)), put(grid(AxisType.Explicit), numbers(64, 8), "x"))


def case_in_a_loop() -> None:
    def looped(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, c: softmax(softmax(c).T).T, x) - lax.psum(softmax(x), "i")

    check(jax.jit(over_devices(now(looped))), numbers(64, 8))


def case_gradient() -> None:
    stitched = over_devices(now(summed))
    check(jax.jit(jax.grad(lambda x: jnp.sum(stitched(x) ** 2))), numbers(64, 8))


def case_several_calls() -> None:
    first, second = now(summed), now(lambda x: softmax(x) * lax.axis_index("i"))
    check(jax.jit(over_devices(lambda x: second(first(x)) + first(x))), numbers(64, 8))


def case_profile() -> None:
    function, x = jax.jit(over_devices(now(summed))), numbers(64, 8)
    jax.block_until_ready(function(x))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(function(x))
        (path,) = Path(folder).rglob("*.trace.json.gz")
        with gzip.open(path) as file:
            names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
    assert any(name.startswith("stitch_") for name in names), names
    assert not any("ffi_call" in name for name in names), names
