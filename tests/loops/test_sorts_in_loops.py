"""Sorts of short rows in the steps of loops are part of the loop's kernel: in XLA's order, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import graph, stitch_jit
from jax_stitch.loops.rewrites.ranked_sorts import with_ranked_sorts
from tests.fusion import forced
from tests.loops.test_next_values import made

Function = Callable[..., Any]

SORTS: dict[str, Function] = {
    "ascending": lambda x: jnp.sort(x, -1),
    "descending": lambda x: jnp.sort(x, -1, descending=True),
    "first dimension": lambda x: jnp.sort(x, 0),
    "places": lambda x: jnp.argsort(x, -1),
    "places, descending": lambda x: jnp.argsort(x, -1, descending=True),
    "with others": lambda x: lax.sort((x, jnp.flip(x, -1), lax.broadcasted_iota(jnp.int32, x.shape, 0)), num_keys=1),
    "by two keys": lambda x: lax.sort((jnp.round(x), jnp.flip(x, -1), x), num_keys=2),
}
LOOSE: dict[str, Function] = {
    "unstable": lambda x: lax.sort(x, is_stable=False),
    "median": lambda x: jnp.median(x, -1),
    "quantiles": lambda x: jnp.quantile(x, jnp.asarray([0.1, 0.6], x.dtype), axis=-1),
}


def loop(function: Function) -> Function:
    """Return a scan whose steps sort, each another row of numbers."""
    return lambda xs: lax.scan(lambda carry, x: (carry + 1, function(x)), 0, xs)


def special() -> np.ndarray:
    """Return zeros of both signs, infinities, NaNs of both signs, subnormal numbers, equal numbers."""
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40, 2.0, 2.0, -3.0, 2.0, -0.0, 0.0, np.nan]
    return np.stack([np.roll(np.asarray(values, np.float32), k) for k in range(3)])


def rows(*dims: int) -> np.ndarray:
    """Return numbers of which some are equal."""
    x = np.random.default_rng(0).standard_normal((3, *dims))
    return np.round(x * 8).astype(np.float32) / 8


def both(function: Function, xs: np.ndarray, device: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each result of the stitched loop, and of XLA's."""
    run = loop(function)
    stitched = made(run, (xs,), device)
    assert any(p.team is not None for k in stitched.kernels for p in k.scheduled.parts), str(stitched.plan)
    for got, want in zip(forced.run(stitched, (xs,)), jax.tree.leaves(jax.jit(run)(xs)), strict=True):
        yield got, np.asarray(want)


def check(function: Function, xs: np.ndarray, device: str = "cpu") -> None:
    for got, want in both(function, xs, device):
        np.testing.assert_array_equal(got, want)
        if want.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("dims", [(2,), (15,), (64,), (5, 12)])
@pytest.mark.parametrize("name", SORTS)
def test_rows_are_sorted_as_by_xla(name: str, dims: tuple[int, ...]) -> None:
    check(SORTS[name], rows(*dims))


@pytest.mark.parametrize("dims", [(15,), (5, 12)])
@pytest.mark.parametrize("name", LOOSE)
def test_rows_whose_results_are_rounded_or_have_no_order(name: str, dims: tuple[int, ...]) -> None:
    for got, want in both(LOOSE[name], rows(*dims), "cpu"):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["ascending", "descending", "places", "with others", "by two keys"])
def test_special_values_have_their_places(name: str) -> None:
    """Zeros of both signs are equal, so that they stay in order, each with its sign; NaNs come last."""
    check(SORTS[name], special())


@pytest.mark.parametrize("name", ["ascending", "places", "by two keys"])
def test_with_the_schedules_of_a_gpu(name: str) -> None:
    check(SORTS[name], rows(5, 12), "h200")


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers(dtype: Any) -> None:
    random = np.random.default_rng(1)
    check(SORTS["with others"], random.integers(0, 2**31, (3, 20)).astype(dtype) * 2 + 1)


def test_doubles() -> None:
    with jax.enable_x64(True):
        check(SORTS["ascending"], rows(20).astype(np.float64) + 1e-12)


def test_the_carried_value_is_sorted() -> None:
    def run(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, y: jnp.sort(y * -0.5) + x, x)

    x = rows(30)[0]
    (got,) = forced.run(made(run, (x,), "cpu"), (x,))
    np.testing.assert_allclose(got, np.asarray(jax.jit(run)(x)), rtol=1e-6)


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize("function", [SORTS["ascending"], SORTS["places"]])
def test_they_pay_by_default(function: Function) -> None:
    xs = np.random.default_rng(0).standard_normal((50, 64, 8)).astype(np.float32)
    assert stitch_jit(loop(function)).plan(xs).launches <= 2


def test_long_rows_are_left() -> None:
    """Pairs grow with the square of a row."""
    xs = np.random.default_rng(0).standard_normal((50, 500)).astype(np.float32)
    assert not stitch_jit(loop(SORTS["ascending"])).plan(xs).kernels


@pytest.mark.parametrize("comparison, written_out", [("LT, type=TOTALORDER", True), ("LT", False)])
def test_a_comparison_that_knows_no_place_for_nan_is_left(comparison: str, written_out: bool) -> None:
    """Two elements would have the same place, whose bits are added up."""
    less = "%less (a: f32[], b: f32[]) -> pred[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
    less += f"  ROOT %s = pred[] compare(%a, %b), direction={comparison}\n}}\n"
    entry = "ENTRY %main {\n  %x = f32[9] parameter(0)\n"
    entry += "  ROOT %y = f32[9] sort(%x), dimensions={0}, to_apply=%less\n}\n"
    one = graph.build(hlo_parser.parse(f"HloModule m\n\n{less}\n{entry}"))
    assert (with_ranked_sorts(one) is not one) == written_out
