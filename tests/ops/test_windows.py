"""Windows that overlap and their gradients inside kernels: every form of them, ties and NaNs, and those that stay."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

from jax_stitch import graph as graphs
from jax_stitch import stitch, stitch_jit
from jax_stitch.checking import check_function
from jax_stitch.fusion.rewrites.chosen import MOST_NODES, expandable, expanded
from jax_stitch.graph import Graph
from jax_stitch.inspect.report.accuracy import agreement, reference
from tests.fusion import forced
from tests.some import some

TARGETS = {"cpu": forced.device("cpu"), "h200": forced.device("h200")}
TYPES = ("float32", "bfloat16", "int32")
COMBINERS = {
    "add": (lax.add, 0),
    "multiply": (lax.mul, 1),
    "maximum": (lax.max, None),
    "minimum": (lax.min, None),
    "and": (lax.bitwise_and, -1),
    "or": (lax.bitwise_or, 0),
}


def windows_of(graph: Graph) -> int:
    return sum(n.op in ("reduce-window", "select-and-scatter") for n in graph.nodes)


def written_out(graph: Graph, target: str = "h200") -> Graph:
    built = expanded(graph, expandable(graph, TARGETS[target]), TARGETS[target])
    graphs.verify(built)
    return built


def values(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Few different ones, so that many are equal; in float NaNs, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-2, 3, shape).astype(np.float64)
    if jnp.issubdtype(dtype, jnp.floating):
        found = np.where(rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -0.0], shape), found)
    return jnp.asarray(found, dtype)


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """An array's shape and a window of at most 32 elements over it, of two dimensions or with two more around them."""
    along = []
    for _ in range(2):
        size, dilation, base = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
        places = draw(st.integers(1, 7))
        low, high = (draw(st.integers(-1, size)) for _ in range(2))
        spread, reach = (places - 1) * base + 1, (size - 1) * dilation + 1
        high += max(0, reach - (spread + low + high))  # One window at least.
        if min(low, high) < 0 and spread + min(low, 0) + min(high, 0) < 1:
            low, high = 0, reach
        along.append((places, size, draw(st.integers(1, 3)), (low, high), base, dilation))
    if draw(st.booleans()):
        along = [(2, 1, 1, (0, 0), 1, 1), *along, (3, 1, 1, (0, 0), 1, 1)]
    shape, *rest = (tuple(column) for column in zip(*along, strict=True))
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return shape, dict(zip(names, rest, strict=True))


@settings(max_examples=some(5, of=24), deadline=None, derandomize=True)
@given(
    windows(),
    st.sampled_from(sorted(COMBINERS)),
    st.sampled_from(TYPES),
    st.booleans(),
    st.sampled_from(sorted(TARGETS)),
)
def test_every_window_is_what_XLA_says(case, combiner: str, dtype: str, neutral: bool, target: str) -> None:
    """A dimension in another's place, an element left out or combined twice, padding that takes part."""
    shape, window = case
    if combiner in ("and", "or") and dtype != "int32":
        dtype = "int32"
    combine, start = COMBINERS[combiner]
    lowest, highest = (-(2**31), 2**31 - 1) if dtype == "int32" else (-np.inf, np.inf)
    start = start if start is not None else (lowest if combiner == "maximum" else highest)
    initial = np.asarray(jnp.asarray(start if neutral else 1, dtype))
    x = values(jnp.dtype(dtype), shape)

    def function(x):
        return lax.reduce_window(x * 1, initial, combine, **window) + jnp.ones((), dtype)

    assert target == "cpu" or windows_of(written_out(forced.graph_of(function, x), target)) == 0
    (got,) = forced.run(forced.stitched(forced.hlo_of(function, x), TARGETS[target]), (x,))
    want = np.asarray(jax.jit(function)(x))
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def select_and_scatter(x, source, initial, window, select) -> np.ndarray:
    """By definition: each window adds its source to the element that it chose."""
    result = np.full(x.shape, initial, x.dtype)
    for at in np.ndindex(*source.shape):
        chosen = None
        for offset in product(*(range(size) for size, *_ in window)):
            here = tuple(i * s - low + o for i, o, (_, s, (low, _)) in zip(at, offset, window, strict=True))
            if all(0 <= i < n for i, n in zip(here, x.shape, strict=True)):
                if chosen is None or not select(x[chosen], x[here]):
                    chosen = here
        if chosen is not None:
            result[chosen] += source[at]
    return result


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, int, tuple[int, int]]]]:
    """An array's shape, and for each dimension a window's size, stride and padding."""
    shape, window = [], []
    for _ in range(2):
        size = draw(st.integers(1, 4))
        low, high = (draw(st.integers(0, size)) for _ in range(2))
        places = max(draw(st.integers(1, 8)), size - low - high)
        shape.append(places)
        window.append((size, draw(st.integers(1, 4)), (low, high)))
    if draw(st.booleans()):
        shape, window = [2, *shape, 3], [(1, 1, (0, 0)), *window, (1, 1, (0, 0))]
    return tuple(shape), window


@settings(max_examples=some(4, of=20), deadline=None, derandomize=True)
@given(pools(), st.sampled_from(["GE", "LE", "GT"]), st.sampled_from(TYPES))
@example(((2, 1), [(1, 2, (0, 1)), (1, 1, (0, 0))]), "GE", "float32")  # a choice that another row wants as well
def test_every_gradient_is_its_definition(case, direction: str, dtype: str) -> None:
    """Ties to another than the first, a NaN that is passed over, a window counted at a place that it does not cover,
    one that lies in the padding alone.
    """
    shape, window = case
    counts = [(n + sum(pad) - size) // stride + 1 for n, (size, stride, pad) in zip(shape, window, strict=True)]
    name = {"float32": "f32", "bfloat16": "bf16", "int32": "s32"}[dtype]

    def typed(dims: Any, prefix: str = name) -> str:
        return f"{prefix}[{','.join(map(str, dims))}]{{{','.join(map(str, reversed(range(len(dims)))))}}}"

    text = "size={} stride={} pad={}".format(
        *("x".join(column) for column in zip(*((str(k), str(s), f"{a}_{b}") for k, s, (a, b) in window), strict=True))
    )
    hlo = f"""HloModule test
%select {{
  %a = {name}[] parameter(0)
  %b = {name}[] parameter(1)
  ROOT %keep = pred[] compare(%a, %b), direction={direction}
}}
%sum {{
  %a = {name}[] parameter(0)
  %b = {name}[] parameter(1)
  ROOT %c = {name}[] add(%a, %b)
}}
ENTRY %main {{
  %x = {typed(shape)} parameter(0)
  %s = {typed(counts)} parameter(1)
  %i = {name}[] constant(1)
  %n = {typed(counts)} negate(%s)
  ROOT %r = {typed(shape)} select-and-scatter(%x, %n, %i), window={{{text}}}, select=%select, scatter=%sum
}}
"""
    x, source = values(jnp.dtype(dtype), shape), jnp.asarray(np.random.default_rng(1).integers(-9, 9, counts), dtype)
    stitched = forced.stitched(hlo, TARGETS["h200"])
    assert windows_of(stitched.plan.graph) == 0 or not stitched.kernels  # so small that XLA has one kernel of it
    compare = {"GE": np.greater_equal, "LE": np.less_equal, "GT": np.greater}[direction]
    with np.errstate(invalid="ignore"):
        want = select_and_scatter(np.asarray(x), -np.asarray(source), 1, window, compare)
    (got,) = forced.run(stitched, (x, source))
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def max_pool(x, size=3, stride=2):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")


def average_pool(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9


def local_response(x):
    """Over the five channels around each."""
    squares = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), "SAME")
    return x * lax.rsqrt(1 + squares * 1e-2)


def dilated(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME", None, (1, 2, 2, 1))


def gradient(function):
    def of(x):
        return jax.grad(lambda x: jnp.sum(function(x) ** 2))(x)

    of.__name__ = f"{function.__name__}_gradient"
    return of


def forward_mode(x):
    return jax.jvp(max_pool, (x,), (x * x,))


FUNCTIONS = [
    *(f for g in (max_pool, average_pool, local_response, dilated) for f in (g, gradient(g))),
    forward_mode,
]


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_layers_are_in_kernels_and_right(function: Any, target: str, dtype: str) -> None:
    """With the kernels for an H200 in the checking mode, all of one launch: a read beyond the padding."""
    x = jnp.asarray(np.random.default_rng(0).integers(-4, 5, (2, 9, 11, 6)), dtype)
    stitched = forced.stitched(forced.hlo_of(function, x), TARGETS[target])
    # On a CPU gradients stay with XLA, and a quotient that several windows read is made once, by a kernel of its own.
    assert target == "cpu" or (len(stitched.plan.kernels) == 1 and windows_of(stitched.plan.graph) == 0)
    if target == "cpu":
        results = forced.run(stitched, (x,))
    else:
        checked = check_function(stitched, (x,))
        assert checked.launches and not checked.faulty, str(checked)
        results = list(checked.results)
    plain, exact = (jax.tree.leaves(r) for r in (jax.jit(function)(x), reference(function, (x,))))
    assert [str(leaf) for leaf in agreement(results, plain, exact) if not leaf.agrees] == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "stride"), [((4, 14, 14, 8), 2), ((4, 15, 13, 8), 1), ((2, 12, 12, 4), 3)])
def test_what_XLA_expands_is_put_back_together(target: str, shape: tuple[int, ...], stride: int) -> None:
    """Its choice of indices and the scatter to them; with a slice in the scatter, or after it, or none."""

    def function(x):
        return jax.grad(lambda x: (max_pool(x, 3, stride) ** 2).sum())(x)

    (x,) = of(shape)
    plan = stitch_jit(function).plan(x, device=target)
    assert "scatter" in plan.hlo and not any("scatter" in b.reason for b in plan.boundaries)
    assert target == "cpu" or plan.launches == 1 < plan.xla_launches
    x = jnp.asarray(np.random.default_rng(0).integers(-4, 5, shape), jnp.float32)
    np.testing.assert_array_equal(stitch_jit(function)(x), jax.jit(function)(x))


def block(weights, bias, x):
    """Of a small convolutional net."""
    y = lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return max_pool(jax.nn.relu(y + bias))


def block_gradient(weights, bias, x):
    return jax.value_and_grad(lambda w, b: (block(w, b, x) ** 2).mean(), argnums=(0, 1))(weights, bias)


@pytest.mark.parametrize("function", [block, block_gradient], ids=lambda f: f.__name__)
def test_a_convolutional_block(function: Any) -> None:
    """Launches that are no library's: bias, activation and pooling; and all of their gradients in one."""
    shapes = ((3, 3, 16, 32), (32,), (4, 28, 28, 16))
    stitched, plain = (
        stitch_jit(function, planner=planner).plan(*of(*shapes), device="h200") for planner in ("beam", "none")
    )
    assert stitched.launches <= plain.launches and stitched.bytes <= plain.bytes
    if function is block_gradient:
        assert len(stitched.kernels) == 1
        assert stitched.launches < plain.launches / 2
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s) / 4, jnp.float32) for s in shapes]
    results = jax.tree.leaves(jax.jit(stitch(function, schedule_device="h200"))(*args))
    want, exact = (jax.tree.leaves(r) for r in (jax.jit(function)(*args), reference(function, args)))
    assert [str(leaf) for leaf in agreement(results, want, exact) if not leaf.agrees] == []


def of(*shapes: tuple[int, ...], dtype: Any = jnp.float32) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def test_a_scatter_of_other_indices_is_none() -> None:
    """Indices that the array's own do not come first in, or of another order."""
    x = jnp.zeros((4, 6))
    for order in ([1, 0], [0, 0]):
        indices = jnp.stack([lax.broadcasted_iota(jnp.int32, (4, 6), d) for d in order], -1).reshape(-1, 2)

        def function(x, indices=indices):
            return jnp.zeros((6, 6)).at[tuple(indices.T)].add(x.reshape(-1))

        assert not any(n.op == "select-and-scatter" for n in forced.graph_of(function, x).nodes)


def test_large_windows_stay_and_say_why() -> None:
    def function(x):
        return lax.reduce_window(x + 1, 0.0, lax.add, (6, 6), (1, 1), "SAME") * 2

    plan = stitch_jit(function).plan(*of((64, 64)), device="h200")
    assert any("36 elements, more than the 32" in b.reason for b in plan.boundaries)


@pytest.mark.parametrize("shape", [(0, 5, 5, 2), (2, 0, 5, 2), (2, 5, 5, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    for function in (max_pool, gradient(max_pool), average_pool):
        x = jnp.zeros(shape)
        got, want = stitch_jit(function)(x), jax.jit(function)(x)
        assert got.shape == want.shape and np.array_equal(got, want)


def test_a_graph_grows_only_so_far() -> None:
    def function(x):
        for _ in range(60):
            x = lax.reduce_window(jnp.sin(x), 0.0, lax.add, (5, 5), (1, 1), "SAME")
        return x

    built = forced.graph_of(function, *of((32, 32)))
    found = written_out(built)
    assert 0 < windows_of(found) < 60 and len(found) < len(built) + 2 * MOST_NODES
