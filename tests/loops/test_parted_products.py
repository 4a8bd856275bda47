"""The products of a recurrent cell's gates made part by part, and weight gradients as kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.graph import build
from jax_stitch.graph.model import Graph
from jax_stitch.loops.rewrites.parted_products import with_products_of_parts
from jax_stitch.util.values import replace

CPU = replace(devices.get("cpu"), multiprocessors=2)


def normal(seed: int, *dims: int) -> Any:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def lstm(w: Any, u: Any, b: Any, xs: Any) -> Any:
    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    return jax.lax.scan(cell, (zero, zero), xs)[1]


def lstm_in_numpy(w: Any, u: Any, b: Any, xs: Any) -> Any:
    w, u, b, xs = (np.asarray(a, np.float64) for a in (w, u, b, xs))
    h = c = np.zeros((xs.shape[1], u.shape[0]))
    states = []
    for x in xs:
        i, f, g, o = np.split(x @ w + h @ u + b, 4, -1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        states.append(h)
    return np.stack(states)


def cell_of(hidden: int, batch: int = 1, dtype: Any = np.float32) -> list[Any]:
    scale = hidden**-0.5
    drawn = [normal(0, 12, 4 * hidden) * 0.2, normal(1, hidden, 4 * hidden) * scale, normal(2, 4 * hidden) * 0.1]
    return [a.astype(dtype) for a in (*drawn, normal(3, 9, batch, 12))]


def products(function: Callable[..., Any], args: list[Any]) -> tuple[list[tuple[int, ...]], Graph, Graph]:
    """What the products in a loop's body are once they are made in parts; and the graph before and after."""
    graph = build(hlo_parser.parse(capture(function, args, CPU).text))
    (loop,) = [n.id for n in graph.nodes if n.op == "while"]
    after = with_products_of_parts(graph, loop)
    (body,) = [n.graphs["body"] for n in after.nodes if n.op == "while"]
    return sorted(n.tensor.dims for n in body.nodes if n.op == "dot"), graph, after


def test_gates_are_made_part_by_part() -> None:
    found, before, after = products(lstm, cell_of(24))
    assert found == [(1, 24)] * 8
    assert before is not after


def test_what_is_read_as_a_whole_stays_whole() -> None:
    """Made twice, the product would take twice as long."""

    def normed(w: Any, u: Any, b: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            gates = x @ w + h @ u + b
            one, two, *_ = jnp.split(gates / jnp.linalg.norm(gates), 4, -1)
            return jnp.tanh(one) * two, None

        return jax.lax.scan(cell, jnp.zeros((1, u.shape[0])), xs)[0]

    found, before, after = products(normed, cell_of(24))
    assert found == [(1, 96)] * 2
    assert before is after


def test_several_rows_stay_whole() -> None:
    """Their places are written out for each row of a block: a sweep of its own is shorter to compile, and as fast."""
    found, before, after = products(lstm, cell_of(24, batch=4))
    assert found == [(4, 96)] * 2
    assert before is after


def test_a_chain_of_squares_is_followed_once() -> None:
    """Each of 60 was asked about both of its operands, the same one: 2^60 questions."""

    def squares(xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = h + x
            for _ in range(60):
                h = h * h
            one, two = jnp.split(h, 2, -1)
            return jnp.concatenate([jnp.sin(one), jnp.cos(two)], -1), None

        return jax.lax.scan(step, jnp.zeros((1, 64)), xs)[0]

    found, before, after = products(squares, [normal(0, 50, 1, 64)])
    assert found == [] and before is after


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("hidden", [16, 21, 40, 128])
def test_cells_of_one_sequence(hidden: int, dtype: Any) -> None:
    """A part that starts elsewhere, of the other operand, or without the bias; a state that is read too late."""
    args = cell_of(hidden, dtype=dtype)
    with jax.enable_x64(dtype is np.float64):
        made = np.asarray(stitch_jit(lstm, mode="now")(*args))
        (text,) = [k.source for k in stitch_jit(lstm).plan(*args).kernels if "a loop of 9 steps" in k.source]
    np.testing.assert_allclose(made, lstm_in_numpy(*args), 0, 2e-6 if dtype is np.float32 else 1e-13)
    assert "ST_PRODUCT_APART" in text


def unlike(w: Any, u: Any, xs: Any) -> Any:
    """Parts that are not as wide, one of which is left out, another read twice; an update behind a reshape."""

    def step(h: Any, x: Any) -> Any:
        z = jnp.sin((h @ u).reshape(-1) + (x @ w).reshape(-1))
        a, b, c = z[:40], z[60:100], z[100:140]
        return (a * b + jnp.cos(b) - c).reshape(1, 40), a[:3]

    return jax.lax.scan(step, jnp.zeros((1, 40), xs.dtype), xs)


def test_parts_of_any_widths() -> None:
    w, u, xs = normal(0, 12, 140) * 0.2, normal(1, 40, 140) * 0.1, normal(2, 9, 1, 12)
    made = stitch_jit(unlike, mode="now")(w, u, xs)
    with jax.enable_x64():
        right = jax.jit(unlike)(*(np.asarray(a, np.float64) for a in (w, u, xs)))
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, 0, 5e-6)


def loss(w: Any, u: Any, b: Any, xs: Any) -> Any:
    return jnp.sum(lstm(w, u, b, xs)[-1] ** 2)


@pytest.mark.parametrize(("hidden", "batch"), [(32, 64), (48, 7), (64, 24)])
@pytest.mark.usefixtures("zen4")
def test_weight_gradients_are_kernels(hidden: int, batch: int) -> None:
    """XLA copies what is summed up along its first dimension into another order; there a batch's gradients took it half
    of the time. Catches: a tile of another one's rows or columns, steps of a block left out.
    """
    args = cell_of(hidden, batch)
    gradient = jax.grad(loss, (0, 1, 2, 3))
    sums = [k.source for k in stitch_jit(gradient).plan(*args).kernels if "a sum over the steps of a loop" in k.source]
    assert sum("ST_PRODUCT" in text for text in sums) == 2
    made = stitch_jit(gradient, mode="now")(*args)
    with jax.enable_x64():
        right = jax.jit(gradient)(*(np.asarray(a, np.float64) for a in args))
    for a, b in zip(made, right, strict=True):
        np.testing.assert_allclose(a, b, 0, 3e-6 * float(np.abs(b).max()))
