"""Small matrix products inside kernels: every form of them, exact types and sub-word floats, and those that stay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from bench.workloads import ALL
from jax_stitch import graph as graphs
from jax_stitch import stitch_jit
from jax_stitch.checking import check_function
from jax_stitch.fusion.rewrites.small_dots import MOST_NODES, note, written_out
from jax_stitch.graph import Graph
from tests.fusion import forced
from tests.some import some

TARGETS = {"cpu": forced.device("cpu"), "h200": forced.device("h200")}
TYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int8", "uint16")


def dots(graph: Graph) -> int:
    return sum(n.op == "dot" for n in graph.nodes)


def left_of(function: Callable[..., Any], *args: Any, target: str) -> int:
    """The products that are still products when the small ones have been written out."""
    built = written_out(forced.graph_of(function, *args), TARGETS[target])
    graphs.verify(built)
    return dots(built)


@st.composite
def products(draw: st.DrawFn) -> tuple[Any, list[int], list[int], Any]:
    """Dimension numbers of a product and its operands' shapes, their dimensions in any order."""
    counts = [draw(st.integers(low, high)) for low, high in ((1, 2), (1, 2), (0, 2), (0, 1))]
    sizes = [[draw(st.integers(2, 4)) for _ in range(n)] for n in counts]
    names = [[f"{kind}{k}" for k in range(len(found))] for kind, found in zip("bclr", sizes, strict=True)]
    size = dict(zip(chain(*names), chain(*sizes), strict=True))
    sides = [draw(st.permutations(names[0] + names[1] + own)) for own in names[2:]]
    numbers = tuple(tuple([side.index(n) for n in which] for side in sides) for which in (names[1], names[0]))
    return numbers, [size[n] for n in sides[0]], [size[n] for n in sides[1]], draw(st.sampled_from(TYPES))


@settings(max_examples=some(6, of=24), deadline=None, derandomize=True)
@given(products(), st.sampled_from(sorted(TARGETS)))
def test_every_product_is_what_NumPy_says(case, target) -> None:
    """A dimension in another's place, a term left out or added twice, a type that is too narrow."""
    numbers, left, right, dtype = case
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        a, b = (jnp.asarray(rng.integers(-8, 8, shape), dtype) for shape in (left, right))

        def function(a, b):
            return lax.dot_general(a + a, b, numbers) + jnp.ones((), dtype)

        assert left_of(function, a, b, target=target) == 0
        (got,) = forced.run(forced.stitched(forced.hlo_of(function, a, b), TARGETS[target]), (a, b))
        wide = [np.asarray(x, np.int64 if jnp.issubdtype(dtype, jnp.integer) else np.float64) for x in (a, b)]
        want = np.asarray(lax.dot_general(2 * wide[0], wide[1], numbers)) + 1
    # Small integers are exact in float too; sub-word floats are rounded once, and by the addition.
    exact = want.astype(got.dtype) if jnp.issubdtype(dtype, jnp.integer) else want
    precision = {"bfloat16": 2.0**-7, "float16": 2.0**-10}.get(dtype, 0)
    np.testing.assert_allclose(got.astype(want.dtype), exact.astype(want.dtype), rtol=precision, atol=precision)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_sub_word_floats_are_added_up_in_float(dtype, target: str) -> None:
    """In their own type 15 ones would be lost beside the first term."""
    large = 4 / float(jnp.finfo(dtype).eps)
    a = jnp.ones((3, 2, 16), dtype).at[:, :, 0].set(large)
    b = jnp.ones((3, 16, 2), dtype)

    def function(a, b):
        return a @ b - large

    got = forced.run(forced.stitched(forced.hlo_of(function, a, b), TARGETS[target]), (a, b))[0]
    assert np.all(got.astype(np.float64) > 8)


def test_what_is_not_finite_spreads_as_in_XLA() -> None:
    a = jnp.asarray([[[jnp.inf, 1], [jnp.nan, 0]], [[0, -jnp.inf], [1, 1]]])
    b = jnp.asarray([[[0, 1], [1, 1]], [[jnp.inf, 0], [1, -jnp.inf]]])
    for target in TARGETS.values():
        got = forced.run(forced.stitched(forced.hlo_of(lambda a, b: -(a @ b), a, b), target), (a, b))[0]
        np.testing.assert_array_equal(got, -(a @ b))


def matmul(a, b):
    return jnp.exp(a) @ b


def of(*shapes: tuple[int, ...], dtype: Any = jnp.float32) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(s, dtype) for s in shapes)


@pytest.mark.parametrize(
    ("target", "function", "args", "left"),
    [
        ("h200", matmul, of((8192, 8), (8, 3)), 0),
        ("h200", matmul, of((8192, 17), (17, 3)), 1),  # more terms than are written out
        ("h200", matmul, of((4096, 16), (16, 4096)), 1),  # a GEMM: the library's tiles read each operand once
        ("h200", jnp.matmul, of((512, 4, 4), (512, 4, 4)), 1),  # nothing around it that it could join
        ("cpu", jnp.matmul, of((512, 4, 4), (512, 4, 4)), 0),  # 512 calls
        ("cpu", matmul, of((512, 16, 16), (512, 16, 16)), 1),
        ("cpu", matmul, of((8192, 8), (8, 3)), 1),  # one call
        ("h200", matmul, of((64, 4), (4, 4), dtype=jnp.complex64), 1),
    ],
    ids=["small", "long", "large", "alone", "batch_on_cpu", "larger_batch_on_cpu", "one_call_on_cpu", "complex"],
)
def test_which_products_are_small(target: str, function: Any, args: Any, left: int) -> None:
    assert left_of(function, *args, target=target) == left


@pytest.mark.parametrize(
    ("dtype", "attributes", "left"),
    [
        ("f32", "operand_precision={highest,highest}", 0),
        ("f32", "algorithm=dot_f32_f32_f32", 0),
        ("f32", "algorithm=dot_tf32_tf32_f32", 1),  # asks for operands rounded
        ("f32", "algorithm=dot_bf16_bf16_f32", 1),
        ("bf16", "algorithm=dot_bf16_bf16_f32", 0),  # they are already
        ("f16", "algorithm=dot_f16_f16_f16", 1),  # and sums too
    ],
)
def test_what_rounds_otherwise_stays(dtype: str, attributes: str, left: int) -> None:
    built = forced.graph_from(f"""
  %a = {dtype}[64,4]{{1,0}} parameter(0)
  %b = {dtype}[4,4]{{1,0}} parameter(1)
  %e = {dtype}[64,4]{{1,0}} exponential(%a)
  ROOT %d = f32[64,4]{{1,0}} dot(%e, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {attributes}""")
    assert dots(written_out(built, TARGETS["h200"])) == left


def test_a_graph_grows_only_so_far() -> None:
    def function(x):
        for _ in range(40):
            x = jnp.tanh(x) @ x
        return x

    built = forced.graph_of(function, *of((64, 8, 8)))
    found = written_out(built, TARGETS["h200"])
    (names,) = note(built, found)
    assert 0 < dots(found) < 40 and len(found) < len(built) + MOST_NODES
    assert names.count("dot") == 40 - dots(found)


def kalman(f, p, q, h, r):
    """The covariance before and after a measurement of one number."""
    p = f @ p @ jnp.swapaxes(f, -1, -2) + q
    gain = p @ h / (jnp.swapaxes(h, -1, -2) @ p @ h + r)
    return p - gain @ jnp.swapaxes(h, -1, -2) @ p


def classify(x, w, b):
    return jax.nn.softmax(jnp.tanh(x) @ w + b)


def slots(q, k, v):
    scores = jax.nn.softmax(jnp.einsum("bqd,bsd->bqs", q, k))
    return jnp.einsum("bqs,bsd->bqd", scores, v)


def powers(x):
    y = x
    for _ in range(4):
        y = jnp.tanh(y @ x)
    return y


PROGRAMS = {
    kalman: ((20000, 4, 4), (20000, 4, 4), (4, 4), (20000, 4, 1), ()),
    classify: ((64, 128, 8), (8, 3), (3,)),
    slots: ((512, 4, 16), (512, 10, 16), (512, 10, 16)),
    powers: ((20000, 4, 4),),
}


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_are_fewer_launches(function: Any) -> None:
    plan = stitch_jit(function).plan(*of(*PROGRAMS[function]), device="h200")
    assert plan.launches < plan.xla_launches and plan.bytes < plan.xla_bytes
    assert plan.launches == 1
    assert any("written out" in note for note in plan.notes)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_are_as_accurate_as_XLAs(function: Any) -> None:
    """On the CPU as planned there, and the kernels for an H200 without findings of the checking mode."""
    rng = np.random.default_rng(1)
    shapes = [tuple(5 if n > 20 else n for n in s) for s in PROGRAMS[function]]
    args = [rng.uniform(0.2, 0.8, s).astype(np.float32) for s in shapes]
    exact = reference(function, args)
    theirs = np.abs(np.asarray(jax.jit(function)(*args), np.float64) - exact).max()
    checked = check_function(forced.stitched(forced.hlo_of(function, *args), TARGETS["h200"]), args)
    assert checked.launches and not checked.faulty, str(checked)
    for got in (stitch_jit(function)(*args), *checked.results):
        assert np.abs(np.asarray(got, np.float64) - exact).max() <= 2 * theirs + 1e-6 * np.abs(exact).max()


def reference(function: Any, args: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(function(*(jnp.asarray(a, jnp.float64) for a in args)))


def test_derivatives_and_batches() -> None:
    """Products that only ``vmap`` and ``grad`` make."""

    def energy(a, x):
        return jnp.tanh(a @ jnp.sin(x)).sum()

    rng = np.random.default_rng(2)
    a, x = (rng.standard_normal(s).astype(np.float32) for s in ((50, 3, 4), (50, 4)))
    plain, stitched = (jit(jax.vmap(jax.grad(energy, argnums=(0, 1)))) for jit in (jax.jit, stitch_jit))
    for got, want in zip(stitched(a, x), plain(a, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_is_dropped_from_a_kernel_is_not_read_by_it() -> None:
    """Catches a pattern that nobody reads once others make its value for themselves: left to XLA it would stand between
    two of one launch. And zeros of scatters that XLA writes in launches of their own, in some versions in more of them.
    """
    workload = ALL["word2vec"]
    function, args = workload.abstract(workload.size, jnp.float32)
    plan = stitch_jit(function).plan(*args, device="h200")
    assert plan.launches <= 9 and any("written out" in note for note in plan.notes)


@pytest.mark.parametrize("planner", ["none", "span"])
def test_planners_that_keep_library_calls(planner) -> None:
    plan = stitch_jit(powers, planner=planner).plan(*of((64, 4, 4)), device="cpu")
    assert not any("written out" in note for note in plan.notes)
