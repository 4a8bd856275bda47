"""Estimates of XLA's own loops: what was measured of one step, as an order and as factors."""

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
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion import explore
from jax_stitch.graph.builder import freeze
from jax_stitch.graph.model import COPIED, ONE_KERNEL, Node
from jax_stitch.loops.cost.xla_cost import in_one_kernel_seconds, step_seconds, xla_seconds
from jax_stitch.loops.teams import team_choice
from jax_stitch.util.values import replace
from tests.fusion import forced

DEVICE = devices.get("zen4")


def loop_of(run: Callable[..., Any], *args: Any) -> Node:
    with jax.enable_x64(True):
        built = graph.build(hlo_parser.parse(capture(run, args, DEVICE).text))
    (node,) = (n for n in built.nodes if n.op == "while")
    return node


def seconds(step: Callable[[Any], Any], *dims: int, dtype: str = "float32") -> float:
    """Return the estimate of a step of a loop in one kernel, as jax 0.12 compiles it."""
    node = loop_of(lambda x: lax.fori_loop(0, 100, lambda _, c: step(c), x), np.ones(dims, dtype))
    return in_one_kernel_seconds(node.graphs["body"], DEVICE)


def test_rows_that_are_cut_are_copied_one_by_one() -> None:
    """Each element of a slice of rows was priced alike: 566 us were taken for 1,830."""
    columns = seconds(lambda x: jnp.roll(x, 1, 1) * 0.5 + x, 128, 128)
    rows = seconds(lambda x: jnp.roll(x, 1, 0) * 0.5 + x, 128, 128)
    assert 2.5e-6 < columns < 1e-5  # 5.0 us
    assert rows < columns


def test_small_pieces_are_joined_element_by_element() -> None:
    """64 states of 8 values, joined column by column, were 512 copies: 5.4 us in place of 0.4."""
    step = seconds(lambda x: jnp.stack([x[:, k] * 0.5 for k in range(8)], 1), 64, 8)
    assert step < 1.5e-6


def test_copies_of_carried_arrays_count() -> None:
    """A buffer that is read and written in a step is copied by XLA, which was free."""

    def run(buffer: Any, x: Any) -> Any:
        def step(i: Any, carried: Any) -> Any:
            buffer, x = carried
            read = lax.dynamic_index_in_dim(buffer, i * 7 % 1000, 0, keepdims=False)
            return lax.dynamic_update_index_in_dim(buffer, jnp.sin(x + read), i * 3 % 1000, 0), jnp.sin(x - read)

        return lax.fori_loop(0, 100, step, (buffer, x))

    for rows, least, most in ((10_000, 5e-6, 5e-5), (1_000, 0.5e-6, 3e-6)):
        node = loop_of(run, np.ones((rows, 8), np.float32), np.ones(8, np.float32))
        copies = replace(node, attributes=freeze(dict(node.attributes) | {ONE_KERNEL: True, COPIED: 2 * 8 * rows}))
        assert least < step_seconds(copies, node.graphs["body"], DEVICE) < most


@pytest.mark.parametrize(
    ("step", "dims", "least", "most"),
    [
        (lambda x: x * 0.5 + x.max(0)[None], (40, 40), 2e-7, 2e-6),
        (lambda x: x * 0.5 + jnp.abs(x - 1).max(), (40, 40), 1.5e-6, 6e-6),
        (lambda x: x * 0.5 + x.prod(), (100, 100), 7e-6, 2e-5),
        (lambda x: x * 0.5 + x.sum(1)[:, None], (128, 128), 2.3e-6, 9e-6),
        (lambda x: x * 0.5 + x.argmax(1)[:, None], (32, 32), 5e-7, 4e-6),
    ],
    ids=["columns", "to one number", "to one number, long", "by the library", "of two arrays"],
)
def test_reductions(step: Callable[[Any], Any], dims: tuple[int, ...], least: float, most: float) -> None:
    """Each within a factor of two of what was measured. Reductions of more than 32 elements were six ns an element."""
    assert least < seconds(step, *dims) < most


@pytest.mark.parametrize(
    ("function", "single", "double"),
    [
        (jnp.exp, 0.42e-9, 1.72e-9),
        (jnp.tanh, 0.49e-9, 1.42e-9),
        (jnp.sin, 1.9e-9, 10.2e-9),
        (jnp.log, 0.66e-9, 4.0e-9),
        (lambda x: x**1.01, 6.5e-9, 14.5e-9),
    ],
)
def test_functions(function: Callable[[Any], Any], single: float, double: float) -> None:
    """Seconds of an element within a factor of two of what was measured; all functions had one price."""
    for dtype, measured in (("float32", single), ("float64", double)):
        with_it = seconds(lambda x: function(x) * 0.5 + 0.1, 4096, dtype=dtype)
        without = seconds(lambda x: x * 0.5 + 0.1, 4096, dtype=dtype)
        assert measured / 2 < (with_it - without) / 4096 < measured * 2


def forces(x: Any) -> Any:
    d = x[None] - x[:, None]
    return x + 1e-6 * (d / ((d * d).sum(-1) + 0.01)[..., None] ** 1.5).sum(1)


def sinkhorn(c: Any, g: Any) -> Any:
    f = -0.1 * jax.nn.logsumexp((g[None] - c) / 0.1, axis=1)
    return -0.1 * jax.nn.logsumexp((f[:, None] - c) / 0.1, axis=0)


def jacobi(x: Any) -> Any:
    y = 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))
    return y + 1e-9 * jnp.abs(y - x).max()


@pytest.mark.parametrize(
    ("step", "dims", "least", "most"),
    [
        (forces, [(128, 3)], 150e-6, 600e-6),
        (lambda c, g: (c, sinkhorn(c, g)), [(64, 80), (80,)], 12e-6, 36e-6),
        (jacobi, [(64, 64)], 3.5e-6, 13e-6),
    ],
    ids=["values computed again", "library", "pieces"],
)
def test_loops_of_several_kernels(step: Callable[..., Any], dims: list[Any], least: float, most: float) -> None:
    """Each within a factor of two of what was measured. They were a fifth to a half of it: XLA got the loops."""

    def run(*carried: Any) -> Any:
        return lax.fori_loop(0, 100, lambda _, c: step(*c) if len(dims) > 1 else (step(*c),), carried)

    node = loop_of(run, *(np.ones(d, np.float32) for d in dims))
    assert least < xla_seconds(node.graphs["body"], devices.get("zen3")) < most


def test_products_of_factors_beyond_a_cores_cache_take_longer() -> None:
    """A decoder's step, whose weights are 12 MB, was taken for faster than one kernel of ours."""

    def step_of(width: int) -> float:
        def run(w: Any, x: Any) -> Any:
            return lax.fori_loop(0, 100, lambda _, c: jnp.tanh(c @ w), x)

        node = loop_of(run, np.ones((width, width), np.float32), np.ones((1, width), np.float32))
        return in_one_kernel_seconds(node.graphs["body"], DEVICE) / width**2

    assert step_of(1024) > 1.5 * step_of(256)


@pytest.mark.parametrize(
    ("step", "dims", "measured"),
    [
        (lambda a, x: x @ a, (64, 64), 0.19e-6),
        (lambda a, x: a @ x, (60, 60), 0.37e-6),
        (lambda a, x: x @ a, (100, 100), 0.80e-6),
        (lambda a, x: a.T @ (a @ x), (64, 128), 2.0e-6),
        (lambda a, x: a.T @ (a @ x), (100, 60), 1.8e-6),
    ],
    ids=["even", "uneven rows", "uneven columns", "transposed in a fusion", "both"],
)
def test_products_with_vectors(step: Callable[..., Any], dims: tuple[int, int], measured: float) -> None:
    """Each within 1.5 times what was measured. All multiplications had one price: a step of FISTA was taken for 0.9 us
    in place of 2 to 3, and stayed with XLA."""

    def run(a: Any, x: Any) -> Any:
        return lax.fori_loop(0, 100, lambda _, x: step(a, x) * 0.01, x)

    node = loop_of(run, np.ones(dims, np.float32), np.ones(dims[1], np.float32))
    assert measured / 1.5 < in_one_kernel_seconds(node.graphs["body"], DEVICE) < measured * 1.5


def test_a_roll_by_data_is_no_vectors() -> None:
    """Each element asks which of the joined arrays it is in: 0.7 to 1.5 us a step, taken for 0.2."""

    def run(x: Any, shifts: Any) -> Any:
        return lax.scan(lambda x, by: (jnp.maximum(x, jnp.roll(x, by) + 0.5), None), x, shifts)[0]

    node = loop_of(run, np.ones(500, np.float32), np.ones(60, np.int32))
    assert 4e-7 < in_one_kernel_seconds(node.graphs["body"], DEVICE) < 2e-6


def test_a_loop_that_is_one_kernel_of_xlas_has_none_of_ours_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder's loop was left to XLA, and 81 calls of ours put into each of its steps: 12 ms became 29."""
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: False)

    def run(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            y = jax.nn.softmax(c @ jnp.exp(w * c.mean()))
            return jnp.tanh(y - y.mean()), y.sum()

        return lax.scan(step, x, None, length=40)

    built = graph.build(
        hlo_parser.parse(capture(run, (np.ones((640, 640), "f4"), np.ones((1, 640), "f4")), DEVICE).text)
    )
    marked = replace(
        built,
        nodes=tuple(
            replace(n, attributes=freeze(dict(n.attributes) | {ONE_KERNEL: True})) if n.op == "while" else n
            for n in built.nodes
        ),
    )
    with forced.everything_pays():
        plan = explore(marked, DEVICE)
    assert plan.children and not any(child.kernels for child in plan.children.values())
