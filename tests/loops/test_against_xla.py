"""Loops are stitched where that is faster than XLA's own kernels by estimate, in threads as in teams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jax_stitch import devices
from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.graph import build
from jax_stitch.graph.model import Graph, Node, TensorType
from jax_stitch.loops.cost.weights import own_weight, plain_weight, total, xla_weight
from jax_stitch.loops.loop_patterns import prepared, stitched_loops

CPU = replace(devices.get("cpu"), multiprocessors=2, clock_ghz=3.0, warp_size=8, fp32_lanes=8)


def struct(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def ring(place: Callable[[Any, Any, int], Any]) -> Callable[..., Any]:
    """A loop that writes a row into a large array in each step, as a replay buffer does."""

    def run(buffer: Any, h: Any, qs: Any, places: Any) -> Any:
        def step(carry: Any, given: Any) -> Any:
            buffer, i, h = carry
            q, p = given
            row = jnp.tanh(q + h)
            buffer = lax.dynamic_update_index_in_dim(buffer, row, place(i, p, buffer.shape[0]), 0)
            return (buffer, i + 1, jnp.tanh(0.9 * h + q)), None

        return lax.scan(step, (buffer, jnp.int32(0), h), (qs, places))[0]

    return run


RING = struct(10_000, 8), struct(8), struct(500, 8), struct(500, dtype=jnp.int32)
WRITES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "in order": (ring(lambda i, p, n: i), RING),
    "around": (ring(lambda i, p, n: i % n), RING),
    "at places from data": (ring(lambda i, p, n: p), RING),
    "of a smaller array": (ring(lambda i, p, n: i), (struct(1000, 8), *RING[1:])),
    "of numbers": (
        lambda x, at: lax.fori_loop(0, 500, lambda k, x: x.at[at[k]].set(x[at[k] + 1] * 0.5), x),
        (struct(1000), struct(500, dtype=jnp.int32)),
    ),
    "counts": (
        lambda at: lax.fori_loop(0, 2000, lambda k, counts: counts.at[at[k]].add(1.0), jnp.zeros(64)),
        (struct(2000, dtype=jnp.int32),),
    ),
}


def patterns_in(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Graph, tuple[Pattern, ...]]:
    graph = prepared(build(module_of(capture(function, args, CPU).text)), CPU)
    return graph, stitched_loops(graph, CPU).patterns


def loops_in(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    graph, patterns = patterns_in(function, args)
    return sum(graph[i].op == "while" for p in patterns for i in p.nodes)


@pytest.mark.parametrize("name", WRITES)
def test_few_rows_written_in_a_step_are_written_in_place(name: str) -> None:
    """Each of 10,000 rows went through all steps to be written in one of them: 860 times slower than under ``jit``."""
    for pattern in patterns_in(*WRITES[name])[1]:
        assert isinstance(pattern.loop, TeamLoop) and any(c.placed for c in pattern.loop.carried)


def test_steps_of_all_rows_are_stitched() -> None:
    def run(x: Any, y: Any, z: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            x, y, z = state
            for _ in range(4):
                x, y, z = x + 0.1 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - 2.7 * z)
            return (x, y, z), None

        return lax.scan(step, (x, y, z), length=1000)[0]

    assert loops_in(run, (struct(2048),) * 3) == 1


def operation(op: str, dtype: str) -> Node:
    return Node(0, op, TensorType(dtype, (8,)), ())


@pytest.mark.parametrize("weigh", [own_weight, xla_weight])
def test_doubles_weigh_more(weigh: Any) -> None:
    """Functions of doubles were as cheap as those of floats, by estimate, and took eight times as long."""
    for op in ("add", "exponential", "tanh", "sine", "power"):
        assert sum(weigh(operation(op, "f64"))) >= 2 * sum(weigh(operation(op, "f32"))), op
    assert sum(weigh(operation("sine", "f64"))) > 4 * sum(weigh(operation("exponential", "f64")))
    assert total(plain_weight, [operation("sine", "f64"), operation("add", "f64")]) == (1.0, 1.0)
