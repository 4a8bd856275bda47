"""Graphs of what XLA compiles: the forms that the explorer and the kernels count on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.graph import Graph
from jax_stitch.graph.opcodes import DATA_MOVEMENT, ELEMENTWISE
from tests.graph.helpers import only, ops

X = jax.ShapeDtypeStruct((129, 77), jnp.float32)
V = jax.ShapeDtypeStruct((77,), jnp.float32)
Y = jax.ShapeDtypeStruct((129,), jnp.int32)
KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)

DEVICES = [
    "cpu",
    pytest.param("h200", marks=pytest.mark.skipif(not cuda_plugin_installed(), reason="needs the CUDA plugin")),
]


def build(device: str, fun: Callable[..., Any], *args: Any) -> Graph:
    built = graph.build(hlo_parser.parse(capture(fun, args, devices.get(device)).text))
    graph.verify(built)
    return built


@pytest.mark.parametrize("device", DEVICES)
def test_random_bits_are_plain_arithmetic(device: str) -> None:
    """XLA:CPU keeps threefry's rounds as a loop; it has to be gone for dropout to fuse."""

    def dropout(x: Any, key: Any) -> Any:
        return jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape), x / 0.9, 0)

    built = build(device, dropout, X, KEY)
    assert set(ops(built)) <= ELEMENTWISE | DATA_MOVEMENT | {"constant"}
    rotations = {int(n.literal) for n in built.nodes if n.literal is not None and n.literal.dtype == np.uint32}
    assert {13, 15, 26, 6, 17, 29, 16, 24} <= rotations, "the rounds' shifts have become constants"


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_cross_entropy_has_no_scatter(device: str) -> None:
    def loss(x: Any, y: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    built = build(device, jax.grad(loss), X, Y)
    assert "scatter" not in ops(built)
    assert ops(built).count("reduce") <= 3


@pytest.mark.parametrize("device", DEVICES)
def test_layer_norm_gradient_keeps_nothing_of_xlas_duplicates(device: str) -> None:
    def norm(x: Any, g: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g

    built = build(device, lambda x, g, dy: jax.vjp(norm, x, g)[1](dy), X, V, X)
    kinds = [
        (n.op, n.type, n.operands, str(n.attributes)) for n in built.nodes if n.op not in ("parameter", "constant")
    ]
    assert len(kinds) == len(set(kinds))
    subtracted = [n for n in built.nodes if n.op == "subtract" and n.tensor.dims == (129, 77)]
    assert len(subtracted) == 1, "x - mean is calculated in several of XLA's kernels"
    assert all(n.kernel for n in built.nodes if n.op in ELEMENTWISE)
    assert {n.source.rpartition(":")[0].rpartition("/")[2] for n in built.nodes if n.op == "rsqrt"} == {
        "test_compiled.py"
    }


@pytest.mark.parametrize("device", DEVICES)
def test_a_scan_is_a_loop_that_knows_its_length(device: str) -> None:
    def run(x: Any, v: Any) -> Any:
        return lax.scan(lambda c, row: (jnp.sin(c) + row, c.sum()), v, x)

    loop = only(build(device, run, X, V), "while")
    assert loop.attributes["trip_count"] == 129
    body = loop.graphs["body"]
    assert len(body.parameters) == len(body.results) == len(loop.operands)
    assert {"sine", "reduce", "dynamic-update-slice"} <= set(ops(body))
