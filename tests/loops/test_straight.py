"""Straight code in one kernel of a CPU: products, reductions along any dimension, and what stands between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.small.programs import PROGRAMS
from jax_stitch import devices, stitch_jit
from jax_stitch.analysis.patterns.pattern import FusionPlan
from jax_stitch.analysis.patterns.team import TeamLoop
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion import planner
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.kernel.agreement import assert_close, interpreted

Function = Callable[..., Any]


def normal(seed: int, *dims: int) -> Any:
    return np.random.default_rng(seed).standard_normal(dims)


def both_minor(x: Any, w: Any) -> Any:
    """A product of which both operands run along what is summed up, and its gradient, where others do."""
    return jax.value_and_grad(lambda x, w: jnp.sum(jnp.tanh(jnp.einsum("ik,jk->ij", x, w)) ** 2), (0, 1))(x, w)


def batched(a: Any, b: Any) -> Any:
    """Products of a batch, one of which has its operands the wrong way round."""
    scores = jax.nn.softmax(jnp.einsum("hle,hme->hlm", a, b), -1)
    return jnp.einsum("hlm,hme->hle", scores, b), scores.max((0, 1))


def halves(x: Any) -> Any:
    """A scan by halves and its gradient: pads that fill each other's gaps, and some that do not."""
    return jax.lax.associative_scan(jnp.add, x * x, axis=1), jax.grad(lambda x: jnp.prod(jnp.cumprod(x, 1)[:, -1]))(x)


def negative_zero(x: Any, padding: float = 0.0) -> Any:
    """A zero below zero and zero are a zero: what stands in a gap is one of such sums."""
    a, b = -jnp.abs(x @ jnp.zeros((4, 4), x.dtype)), x @ jnp.eye(4, dtype=x.dtype)
    zero = jnp.array(padding, x.dtype)
    woven = jax.lax.pad(a, zero, ((0, 0, 0), (0, 1, 1))) + jax.lax.pad(b, zero, ((0, 0, 0), (1, 0, 1)))
    return 1.0 / woven


def side_by_side(x: Any) -> Any:
    """Sums of three padded arrays that fill one another's gaps, leave one, and meet; a zero below zero among them."""

    def put(y: Any, low: int) -> Any:
        return jax.lax.pad(y, jnp.zeros((), x.dtype), ((0, 0, 0), (low, 8 - low, 0)))

    a, b = -jnp.abs(x @ jnp.zeros((4, 4), x.dtype)), x @ jnp.eye(4, dtype=x.dtype)
    c = jnp.tanh(b)
    filled = put(a, 0) + put(b, 8) + put(c, 4)
    return 1.0 / filled, filled @ filled.T, put(a, 0) + (put(b, 7) + put(c, 4)), put(a, 0) + put(b, 8) + put(c, 8)


def pieces(x: Any, y: Any) -> Any:
    """Scalars and rows put together to matrices that are multiplied, and taken apart again."""
    c, s = jnp.cos(x), jnp.sin(x)
    one, zero = jnp.ones_like(c), jnp.zeros_like(c)
    turn = jnp.array([[c, -s, zero], [s, c, zero], [zero, zero, one]]) @ y
    return turn @ turn, jnp.concatenate([turn[:1], y, turn[1:]], 0) @ y.T, (turn @ y)[1, 2]


def picked(table: Any, at: Any, w: Any) -> Any:
    """Rows at places that are data, out of range as well, and which is the largest."""
    rows = jnp.take(table @ w, at, axis=0, mode="clip")
    return rows, jnp.argmax(rows @ w.T, -1), jax.lax.dynamic_slice(rows @ w, (at[0], at[1]), (2, 2))


def several_readers(x: Any, w: Any) -> Any:
    """A value that takes long and that phases of different sizes read."""
    e = jnp.exp(x @ w)
    return e / e.sum(0), e / e.sum(1, keepdims=True), e @ e.T, e.reshape(-1)[::2]


def untouched(x: Any, w: Any) -> Any:
    """Arguments, and views of them, among the results."""
    return x, x.T, (x @ w).reshape(-1), w[1:, ::2] @ w[::2, 1:]


CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "both_minor": (both_minor, (normal(0, 9, 12), normal(1, 20, 12))),
    "both_minor_of_few_rows": (both_minor, (normal(0, 2, 12), normal(1, 3, 12))),
    "batched": (batched, (normal(0, 3, 10, 8), normal(1, 3, 11, 8))),
    "halves": (halves, (normal(0, 3, 37),)),
    "negative_zero": (negative_zero, (normal(0, 5, 4),)),
    "side_by_side": (side_by_side, (normal(0, 5, 4),)),
    "pieces": (pieces, (np.array(0.3), normal(0, 3, 3))),
    "picked": (picked, (normal(0, 7, 5), np.array([3, 9, -2, 0, 6]), normal(1, 5, 5))),
    "several_readers": (several_readers, (normal(0, 8, 5), normal(1, 5, 9))),
    "untouched": (untouched, (normal(0, 6, 5), normal(1, 5, 5))),
    "mlp_step": PROGRAMS["mlp_step"].make(),
}


def is_straight(plan: FusionPlan) -> bool:
    return any(isinstance(p.loop, TeamLoop) and not p.loop.carried for kernel in plan.kernels for p in kernel)


def made(function: Function, args: tuple[Any, ...], name: str = "cpu") -> Stitched:
    """The function with its straight code in kernels, whether or not that pays."""
    device = devices.get(name)
    with mock.patch.object(planner, "call_seconds", lambda plan, _: 0.0 if is_straight(plan) else 1.0):
        return stitch_capture(capture(function, args, device), device)


def given(args: Any, dtype: str) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype if np.asarray(x).dtype.kind == "f" else "int32"), args)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in CASES for dtype in ("float32", "float64")] + [("pieces", "bfloat16")],
)
def test_one_kernel_agrees(name: str, dtype: str) -> None:
    """Catches a value that is stored in the wrong place, read before it is there, or left out."""
    function, numbers = CASES[name]
    with jax.enable_x64(dtype == "float64"):
        args = given(numbers, dtype)
        stitched = made(function, args)
        assert is_straight(stitched.plan)
        assert not stitched.refused
        leaves = jax.tree.leaves(args)
        want = [np.asarray(r) for r in jax.tree.leaves(jax.jit(function)(*args))]
        if dtype != "bfloat16":  # XLA rounds less often there: the interpreter rounds as the kernel does.
            assert_close(interpreted(stitched, leaves), want, f"{name} by the interpreter")
        got = [np.asarray(r) for r in stitched.compile("host")(leaves)]
        rough = dtype == "bfloat16"
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            a, b = g.astype(np.float64), w.astype(np.float64)
            if rough and not np.issubdtype(w.dtype, np.integer):
                finite = np.abs(b[np.isfinite(b)])
                assert np.allclose(a, b, rtol=0.1, atol=0.1 * max(1.0, finite.max(initial=0.0))), name
            elif not rough:
                assert_close([g], [w], name)


@pytest.mark.parametrize("padding", [0.0, -0.0])
def test_signs_of_zeros_in_gaps(padding: float) -> None:
    """``-0 + 0`` is ``0``: written without the sum, ``1 / x`` would be minus infinity. ``-0 + -0`` is ``-0``: with a
    sum of another zero, it would be plus infinity.
    """
    args = given(CASES["negative_zero"][1], "float32")
    function = partial(negative_zero, padding=padding)
    (got,) = made(function, args).compile("host")(args)
    want = np.asarray(jax.jit(function)(*args))
    assert np.isinf(want).any()
    assert np.array_equal(np.isposinf(np.asarray(got)), np.isposinf(want))


def test_a_chain_of_transforms_is_one_kernel() -> None:
    """The worst of the programs that were measured: a call for each of its products."""
    function, numbers = PROGRAMS["chain"].make()
    plan = stitch_jit(function).plan(*given(numbers, "float32"))
    assert len(plan.kernels) == plan.launches == 1


@pytest.mark.usefixtures("zen4")
def test_what_slices_lead_back_to_is_written_in_pieces() -> None:
    """A GRU's gradient asked at each place in which of three gates it was, in a loop of no vectors: a third of its time
    at hidden 32.
    """
    function, numbers = PROGRAMS["gru_128_gradient"].make()
    plan = stitch_jit(function).plan(*given(numbers, "float32"))
    loops = [k.source for k in plan.kernels if "a loop of" in k.source]
    assert len(loops) == 2
    assert not any("pad_" in source for source in loops)


def test_nothing_of_a_gpu_is_straight() -> None:
    """There blocks would wait for each other."""
    args = given((normal(0, 40, 6), normal(1, 6, 6)), "float32")
    on_cpu, on_gpu = (made(lambda x, w: jnp.tanh(x @ w) @ w, args, device) for device in ("cpu", "h200"))
    assert is_straight(on_cpu.plan)
    assert on_gpu.kernels and not is_straight(on_gpu.plan)


def test_what_no_kernel_holds_stands_between_two() -> None:
    """A sort in the middle: what comes before and what comes after must not be one kernel, which would wait for
    itself.
    """

    def function(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w) @ w
        z = jnp.sort(y, 0)
        return (z @ w).sum(0), jnp.exp(y) @ z.T

    args = given((normal(0, 40, 6), normal(1, 6, 6)), "float32")
    stitched = made(function, args)
    straight = [p for kernel in stitched.plan.kernels for p in kernel if isinstance(p.loop, TeamLoop)]
    assert len(straight) == 2
    leaves = list(args)
    want = [np.asarray(r) for r in jax.jit(function)(*args)]
    assert_close([np.asarray(r) for r in stitched.compile("host")(leaves)], want, "sorted")


def test_a_number_that_is_used_on_both_sides_of_what_no_kernel_holds() -> None:
    """Catches a pattern that reads a copy which others make of its own result: it would wait for itself, and planning
    went on for ever.
    """

    def function(a: Any, v: Any) -> Any:
        s = jnp.tanh(jnp.sum(a * v[:, 0]))
        factor = jnp.linalg.cholesky(a.T @ (a * s) + jnp.eye(40) * 5)
        return jnp.exp(factor * s) @ (v * s), jnp.sum(factor * s)

    args = given((normal(0, 40, 40) / 8, normal(1, 40, 8)), "float32")
    assert is_straight(made(function, args).plan)
    want = [np.asarray(r) for r in jax.jit(function)(*args)]
    assert_close([np.asarray(r) for r in stitch_jit(function, mode="now", strict=True)(*args)], want, "by a number")
