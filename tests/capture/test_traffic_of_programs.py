"""Launches and bytes counted on whole programs: the table of the design, and what a CPU runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.traffic import Traffic, traffic
from tests.capture.arguments import CPU, needs_plugin, struct


def layer_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def layer_norm_gradient(x: jax.Array, g: jax.Array, b: jax.Array, dy: jax.Array) -> Any:
    return jax.vjp(layer_norm, x, g, b)[1](dy)


def cart_pole(state: tuple[jax.Array, ...], actions: jax.Array) -> Any:
    def step(state: tuple[jax.Array, ...], action: jax.Array) -> Any:
        x, v, angle, spin = state
        force, cos, sin = jnp.where(action == 1, 10.0, -10.0), jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        state = (x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * cos / 1.1), angle + 0.02 * spin, spin + 0.02 * turn)
        return state, jnp.abs(x) < 2.4

    return jax.lax.scan(step, state, actions)


def count(fun: Callable[..., Any], args: tuple[Any, ...], device: str) -> tuple[Traffic, float]:
    captured = capture(fun, args, devices.get(device))
    bound = sum(p.size * p.dtype.itemsize for p in (*captured.parameters, *captured.results))
    counted = traffic(captured.default_text)
    return counted, counted.bytes / bound


ROWS = struct(8192, 1024)


COLUMN = struct(1024)


@needs_plugin
@pytest.mark.parametrize(
    ("fun", "args", "launches", "ratio"),
    [
        (jax.nn.softmax, (ROWS,), 1, 1.0),
        (layer_norm, (ROWS, COLUMN, COLUMN), 1, 1.0),
        (layer_norm_gradient, (ROWS, COLUMN, COLUMN, ROWS), 6, 2.7),
        (lambda x: jax.nn.softmax(x, axis=0), (ROWS,), 5, 2.0),
        (lambda x: jax.nn.softmax(x, axis=1), (struct(64, 128, 256),), 3, 2.0),
        (jax.nn.softmax, (struct(64, 262144),), 5, 2.0),
        (lambda x: jax.nn.logsumexp(x, axis=-1), (ROWS,), 3, 2.0),
        (lambda x: (x - x.mean()) / x.std(), (ROWS,), 5, 2.0),
    ],
)
def test_the_designs_table(fun: Callable[..., Any], args: tuple[Any, ...], launches: int, ratio: float) -> None:
    counted, found = count(fun, args, "h200")
    assert counted.launches == launches, str(counted)
    assert found == pytest.approx(ratio, abs=0.05)


@needs_plugin
def test_the_designs_table_adamw() -> None:
    optimizer = optax.adamw(1e-3)
    parameters = [struct(*dims) for _ in range(12) for dims in [(64, 64)] * 4 + [(64,)] * 3]
    state = jax.eval_shape(optimizer.init, parameters)
    counted, ratio = count(lambda p, g, s: optimizer.update(g, s, p), (parameters, parameters, state), "h200")
    assert counted.launches == 86, str(counted)
    assert ratio == pytest.approx(1.0, abs=0.05)


@needs_plugin
def test_the_designs_table_cart_pole() -> None:
    steps = 10_000
    counted, _ = count(cart_pole, ((struct(2048),) * 4, struct(steps, 2048, dtype=np.int32)), "h200")
    assert counted.unknown_trips == ()
    in_the_loop = sum(k.launches for k in counted.kernels if k.launches > 1)
    assert in_the_loop == 4 * steps, str(counted)
    # What is sliced and stacked counts by the step: else this would be some 10^12.
    assert counted.bytes < 3e9


@needs_plugin
def test_matrix_products_are_libraries_under_both_compilations() -> None:
    fun, args = (lambda x, w: jax.nn.gelu(x @ w) @ w), (struct(512, 512), struct(512, 512))
    captured = capture(fun, args, devices.get("h200"))
    assert traffic(captured.default_text).library_launches == 2
    assert traffic(captured.text).library_launches == 2


@pytest.mark.parametrize("options", ["text", "default_text"])
def test_on_the_cpu(options: str) -> None:
    captured = capture(lambda x, w: jax.nn.softmax(jnp.tanh(x @ w)), (struct(512, 512), struct(512, 512)), CPU)
    counted = traffic(getattr(captured, options))
    assert counted.library_launches == 1 and 2 <= counted.launches <= 8
    assert counted.bytes >= 3 * 512 * 512 * 4


def test_a_loop_that_xla_compiles_as_one_kernel_is_one_launch() -> None:
    """Catches steps of such a loop that are counted one by one: plans for a CPU promised what nothing could gain. And
    steps of another loop that are not: no version of XLA has sorts in such a kernel, whatever it takes for one.
    """

    def loop(steps: int, of: Callable[[jax.Array], jax.Array]) -> Traffic:
        function = jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda i, a: of(a) * 0.9 + i, x))
        return traffic(function.lower(struct(40)).compile().as_text())

    assert [k.launches for k in loop(500, jnp.sin).kernels if k.opcode == "call"] == [1]
    assert loop(500, jnp.sin).launches == loop(50, jnp.sin).launches < 10
    assert loop(500, jnp.sort).launches > 500
