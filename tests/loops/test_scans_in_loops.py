"""Cumulative sums, maxima and products in the steps of loops: written out in steps that double, as exact as XLA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import graph, stitch_jit
from jax_stitch.graph.model import Graph
from jax_stitch.loops.rewrites.doubled_scans import with_doubled_scans
from tests.fusion import forced
from tests.loops.agreement import loops_of
from tests.loops.test_next_values import made

Function = Callable[..., Any]
STEPS = 3

ALONG: dict[str, Function] = {
    "sums": lambda x: jnp.cumsum(x, -1),
    "sums from the end": lambda x: lax.cumsum(x, x.ndim - 1, reverse=True),
    "sums across": lambda x: jnp.cumsum(x, 0),
    "maxima": lambda x: lax.cummax(x, x.ndim - 1),
    "minima from the end": lambda x: lax.cummin(x, x.ndim - 1, reverse=True),
    "products": lambda x: jnp.cumprod(1 + x * 0.01, -1),
    "log-sum-exps": lambda x: lax.cumlogsumexp(x, x.ndim - 1),
    "distributions": lambda x: jnp.cumsum(jax.nn.softmax(x), -1),
}


def loop(function: Function) -> Function:
    def run(x: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, y: x + (function(y) * 0.01).astype(x.dtype), x)

    return run


def in_float64(function: Function, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        start = jnp.asarray(x, jnp.float64)
        y = start
        for _ in range(STEPS):
            y = start + function(y) * 0.01
        return np.asarray(y)


def normal(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("dims", [(5,), (7,), (33,), (64,), (3, 100)])
@pytest.mark.parametrize("name", ALONG)
def test_scans_are_part_of_a_team(name: str, dims: tuple[int, ...]) -> None:
    """A scan of more than 32 places left the whole loop to XLA; a step that is off by one place is wrong at once."""
    run, args = loop(ALONG[name]), (normal(*dims),)
    stitched = made(run, args, "cpu")
    are_joined = not (jax.__version_info__ < (0, 11) and "from the end" in name and len(dims) == 1 and dims[0] > 32)
    in_team = any(p.team is not None for k in stitched.kernels for p in k.scheduled.parts)
    assert in_team == are_joined, str(stitched.plan)  # XLA of jax 0.10 writes these in blocks that are not recognised.
    got = forced.run(stitched, args)[0] if in_team else stitch_jit(run)(*args)
    np.testing.assert_allclose(got, in_float64(ALONG[name], args[0]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["sums", "minima from the end"])
def test_scans_with_the_schedules_of_a_gpu(name: str) -> None:
    run, args = loop(ALONG[name]), (normal(3, 100),)
    stitched = made(run, args, "h200")
    assert any(p.team is not None for k in stitched.kernels for p in k.scheduled.parts), str(stitched.plan)
    (got,) = forced.run(stitched, args)
    np.testing.assert_allclose(got, in_float64(ALONG[name], args[0]), rtol=2e-5, atol=2e-6)


def test_integers_wrap_as_in_jax() -> None:
    def run(x: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, y: jnp.cumsum(y) * 3, x)

    args = (np.random.default_rng(0).integers(-(2**31), 2**31, 70).astype(np.int32),)
    (got,) = forced.run(made(run, args, "cpu"), args)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(run)(*args)))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_what_comes_after(special: float) -> None:
    x = normal(50)
    x[20] = special

    def run(x: Any) -> Any:
        return lax.fori_loop(0, 1, lambda _, y: jnp.cumsum(y), x), lax.fori_loop(0, 1, lambda _, y: lax.cummax(y), x)

    for got, want in zip(forced.run(made(run, (x,), "cpu"), (x,)), jax.jit(run)(x), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize("function", [loop(ALONG["sums"]), jax.vmap(loop(ALONG["distributions"]))])
def test_they_pay_by_default(function: Function) -> None:
    assert loops_of(function, (normal(8, 200),))[1] == 1


def body(text: str) -> Graph:
    """Return the graph of these instructions, beside a combiner that adds."""
    add = "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
    add += "  ROOT %s = f32[] add(%a, %b)\n}\n"
    return graph.build(hlo_parser.parse(f"HloModule m\n\n{add}\nENTRY %main {{\n{text}\n}}\n"))


def test_a_scan_from_a_value_that_counts_is_left() -> None:
    """Each place's window begins with the initial value, which doubling would count several times."""
    one = body(
        "  %x = f32[40] parameter(0)\n  %one = f32[] constant(1)\n"
        "  ROOT %y = f32[40] reduce-window(%x, %one), window={size=40 pad=39_0}, to_apply=%add"
    )
    assert with_doubled_scans(one) is one


def test_windows_that_are_no_scans_are_left() -> None:
    one = body(
        "  %x = f32[40] parameter(0)\n  %zero = f32[] constant(0)\n"
        "  ROOT %y = f32[40] reduce-window(%x, %zero), window={size=9 pad=8_0}, to_apply=%add"
    )
    assert with_doubled_scans(one) is one
