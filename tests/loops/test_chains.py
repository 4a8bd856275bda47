"""Loops of single elements: what each step waits for, and whether XLA's one kernel is faster than a thread of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from jax_stitch.loops.cost.chains import chain, own_clocks, xla_clocks
from jax_stitch.loops.cost.xla_cost import in_one_kernel_seconds
from tests.fusion import forced

STEPS = 10_000


def histogram(bins: int) -> Callable[[Any], Any]:
    def counted(x: Any) -> Any:
        def step(h: Any, v: Any) -> Any:
            return h.at[jnp.clip((v * bins).astype(jnp.int32), 0, bins - 1)].add(1), None

        return jax.lax.scan(step, jnp.zeros(bins, jnp.int32), x)[0]

    return counted


def histogram_by_index(x: Any) -> Any:
    def body(k: Any, h: Any) -> Any:
        return h.at[jnp.clip((x[k] * 10).astype(jnp.int32), 0, 9)].add(1)

    return jax.lax.fori_loop(0, STEPS, body, jnp.zeros(10, jnp.int32))


def table(x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        t, s = carry
        s = (s * 3 + v.astype(jnp.int32)) % 10
        return (t.at[s].set(t[s] * 0.9 + 1.0), s), t[s]

    return jax.lax.scan(step, (jnp.zeros(10), 0), x)


def chained(count: int, last: Callable[[Any], Any] = lambda h: h) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        def step(h: Any, v: Any) -> Any:
            for _ in range(count):
                h = h * 0.9 + v
            return last(h), None

        return jax.lax.scan(step, jnp.float32(0), x)[0]

    return run


def window(x: Any) -> Any:
    def step(h: Any, v: Any) -> Any:
        h = jnp.concatenate([h[1:], jnp.array([h[0] * 0.5 + v])])
        return h, h[3]

    return jax.lax.scan(step, jnp.zeros(8), x)


def several(x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        return tuple(h * 0.9 + v * k for k, h in enumerate(carry)), None

    return jax.lax.scan(step, tuple(jnp.float32(k) for k in range(3)), x)[0]


FASTER_AS_ONE_KERNEL: dict[str, Callable[[Any], Any]] = {
    "4 bins": histogram(4),
    "10 bins": histogram(10),
    "30 bins": histogram(30),
    "bins by index": histogram_by_index,
    "a table": table,
    "8 products and sums": chained(8),
    "a function": chained(1, jnp.tanh),
}
FASTER_IN_A_THREAD: dict[str, Callable[[Any], Any]] = {
    "a product and a sum": chained(1),
    "a window": window,
    "several sums": several,
}


def _kernels(function: Callable[[Any], Any]) -> int:
    x = np.linspace(0, 1, STEPS, dtype=np.float32)
    return len(stitch_jit(function).plan(x, device="zen4").kernels)


@pytest.mark.parametrize("name", FASTER_AS_ONE_KERNEL)
def test_what_xla_runs_faster_is_left_to_it(name: str) -> None:
    """XLA's steps of single elements were taken for 5 to 8 times as long as they are, and the operations of a chain
    for a quarter: loops that took up to 3 times as long as under ``jax.jit`` were stitched.
    """
    assert _kernels(FASTER_AS_ONE_KERNEL[name]) == 0


@pytest.mark.parametrize("name", FASTER_IN_A_THREAD)
def test_what_a_thread_runs_faster_is_stitched(name: str) -> None:
    assert _kernels(FASTER_IN_A_THREAD[name]) == 1


BODY = """
  h = f32[] parameter(0)
  s = s32[] parameter(1)
  x = f32[16] parameter(2)
  ten = s32[] constant(10)
  three = s32[] constant(3)
  tripled = s32[] multiply(s, three)
  next = s32[] remainder(tripled, ten)
  read = f32[1] dynamic-slice(x, next), dynamic_slice_sizes={1}
  v = f32[] reshape(read)
  product = f32[] multiply(h, v)
  sum = f32[] add(product, v)
  root = f32[] sqrt(sum)
  ROOT all = (f32[], s32[], f32[16]) tuple(root, next, x)
"""


def test_a_chain_goes_from_a_value_to_the_next() -> None:
    """A product, a sum and a root of floats; a product and a division by a constant of whole numbers."""
    body = forced.graph_from(BODY)
    ends = list(zip(body.parameters, body.results, strict=True))
    assert chain(body, ends[:1], own_clocks) == 3 + 3 + 13
    assert chain(body, ends[1:2], own_clocks) == 1 + 4
    assert chain(body, ends, own_clocks) == 3 + 3 + 13
    assert chain(body, ends[:1], xla_clocks) == 1 + 3
    assert chain(body, ends[1:2], xla_clocks) == 0.5 * (1 + 4)


def test_a_load_waits_for_its_index() -> None:
    body = forced.graph_from(BODY)
    read = next(n.id for n in body.nodes if n.op == "dynamic-slice")
    assert chain(body, [(body.parameters[1], read)], own_clocks) == 1 + 4 + 5
    assert chain(body, [(body.parameters[2], read)], own_clocks) == 0


def test_a_step_of_single_elements_is_short_in_xlas_kernel() -> None:
    """It was 84 ns: eight for each of seven kernels, and 20 for either division."""
    body = forced.graph_from(BODY)
    assert in_one_kernel_seconds(body, forced.device("zen4")) < 2e-8
