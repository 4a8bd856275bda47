"""Small convolutions as matrix products on a CPU: the same numbers, whatever the window and the layouts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch import graph as graphs
from jax_stitch.frontend.capture.function import capture
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion.rewrites.chosen import expandable, expanded

CPU = devices.get("cpu")

LAYOUTS = {
    1: (("NHC", "HIO", "NHC"), ("NCH", "OIH", "NCH")),
    2: (("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "OHWI", "NCHW")),
    3: (("NDHWC", "DHWIO", "NDHWC"),),
}
SIZES = {"N": 2, "C": 3, "I": 3, "O": 5, "D": 4, "H": 7, "W": 6}
WINDOW = {"D": 2, "H": 3, "W": 2}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def arrays(layout: tuple[str, str, str]) -> tuple[np.ndarray, np.ndarray]:
    """An input and a kernel."""
    source, kernel = layout[0], layout[1]
    return normal(0, *(SIZES[c] for c in source)), normal(1, *(WINDOW.get(c, SIZES[c]) for c in kernel))


def written_out(fun: Callable[..., Any], *args: Any) -> tuple[graphs.Graph, list[np.ndarray]]:
    """The graph with its small convolutions written out, and what it gives."""
    graph = graphs.build(module_of(capture(fun, args, CPU).text))
    done = expanded(graph, expandable(graph, CPU), CPU)
    return done, [np.asarray(r) for r in jax.jit(replay(StitchedGraph(done)))([jnp.asarray(a) for a in args])]


def agree(fun: Callable[..., Any], *args: Any) -> graphs.Graph:
    """Asserts that no convolution is left, and that in float64 all is as it was."""
    with jax.enable_x64(True):
        done, got = written_out(fun, *args)
        assert not [n for n in done.nodes if n.op == "convolution"] and [n for n in done.nodes if n.op == "dot"]
        for g, w in zip(got, jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
            np.testing.assert_allclose(g, w, 1e-12, 1e-12)
    return done


PADDINGS, STEPS = ("SAME", "VALID", "uneven"), ((1, 1), (2, 1), (1, 2), (2, 2))
CASES = [
    *((LAYOUTS[2][0], padding, *steps) for padding in PADDINGS for steps in STEPS),
    *((one, "uneven", 1, 1) for several in LAYOUTS.values() for one in several[several is LAYOUTS[2] :]),
    *((one, "SAME", 2, 1) for several in LAYOUTS.values() for one in several[several is LAYOUTS[2] :]),
]


@pytest.mark.parametrize(("layout", "padding", "stride", "dilation"), CASES, ids=str)
def test_layers_and_gradients(layout: tuple[str, str, str], padding: str, stride: int, dilation: int) -> None:
    rank = len(layout[0]) - 2
    pads: Any = [(k, 2 - k) for k in range(rank)] if padding == "uneven" else padding
    x, w = arrays(layout)

    def layer(x: Any, w: Any) -> Any:
        strides, dilations = (stride,) * rank, (dilation,) * rank
        return jax.lax.conv_general_dilated(x, w, strides, pads, None, dilations, layout)

    agree(layer, x, w)
    agree(jax.grad(lambda w, x: jnp.sin(layer(x, w)).sum()), w, x)
    if stride == 1:  # Else the gradient has gaps in its input.
        agree(jax.grad(lambda x, w: jnp.sin(layer(x, w)).sum()), x, w)


def test_negative_padding_cuts_off() -> None:
    x, w = arrays(LAYOUTS[2][0])
    agree(lambda x, w: convolution(x, w, ((-1, 2), (0, -2))), x, w)


def test_a_convolution_whose_windows_meet_nothing_but_zeros() -> None:
    x, w = arrays(LAYOUTS[1][0])
    agree(lambda x, w: jax.lax.conv_general_dilated(x, w, (4,), [(9, 9)], None, (2,), LAYOUTS[1][0]), x, w)


def convolution(x: Any, w: Any, padding: Any = "SAME", **more: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=LAYOUTS[2][0], **more)


LEFT: dict[str, Callable[..., Any]] = {
    "groups": lambda x, w: convolution(x, w[:, :, :1, :3], feature_group_count=3),
    "gaps in the input": lambda x, w: convolution(x, w, ((1, 1), (1, 1)), lhs_dilation=(2, 2)),
    "many places": lambda x, w: convolution(jnp.tile(x, (1, 4, 4, 1)), jnp.tile(w, (3, 3, 1, 1))),
    "large": lambda x, w: convolution(jnp.tile(x, (64, 9, 9, 4)), jnp.tile(w, (1, 1, 4, 1))),
    "integers": lambda x, w: convolution(x.astype(int), w.astype(int)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_a_convolution(name: str) -> None:
    x, w = (a.astype(np.float32) for a in arrays(LAYOUTS[2][0]))
    done, _ = written_out(LEFT[name], x, w)
    assert [n for n in done.nodes if n.op == "convolution"]


def block(weights: Any, x: Any) -> Any:
    """Two convolutions, each with a norm, with a way around both."""
    y = x
    for w in weights:
        y = convolution(y, w)
        y = jax.nn.relu((y - y.mean((0, 1, 2))) * jax.lax.rsqrt(y.var((0, 1, 2)) + 1e-5))
    return ((x + y) ** 2).mean()


def test_a_block_of_a_network_and_its_gradient_are_one_kernel() -> None:
    weights = [normal(k, 3, 3, 8, 8).astype(np.float32) * 0.3 for k in range(2)]
    x = normal(9, 2, 6, 6, 8).astype(np.float32)
    fun = stitch_jit(jax.value_and_grad(block), mode="now")
    plan = fun.plan(weights, x)
    assert len(plan.kernels) == 1 and not plan.boundaries
    with jax.enable_x64(True):
        exact = jax.jit(jax.value_and_grad(block))(*jax.tree.map(np.float64, (weights, x)))
    for got, wanted in zip(jax.tree.leaves(fun(weights, x)), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(got, wanted, 2e-4, 2e-6)


def test_a_convolution_that_no_kernel_takes_stays_one() -> None:
    """Its products by themselves would be slower than XLA's convolution."""
    x, w = normal(0, 8, 28, 28, 1).astype(np.float32), normal(1, 3, 3, 1, 32).astype(np.float32)
    fun = stitch_jit(convolution, mode="now")
    text = fun.lower(x, w).compile().as_text()
    assert " convolution(" in text and " dot(" not in text
