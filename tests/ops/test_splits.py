"""Which rows a value may be split into: what users of a sort, a scan or a search ask for must not cut what it needs.

Each program is stitched as by default on a CPU and with the H200's schedules, and compared with ``jax.jit``. The cases
are neighbours of programs that gave wrong results, wrote past their storage, or did not compile: other ranks, axes,
sizes, types and orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch, stitch_jit
from jax_stitch.backend.compile import host
from tests.fusion import forced

WAYS = ("cpu", "h200", pytest.param("all in kernels", marks=pytest.mark.slow))


@contextmanager
def light() -> Iterator[None]:
    with mock.patch.object(host, "FLAGS", forced.LIGHT_FLAGS):
        yield


def check(way: str, function: Callable[..., Any], *args: Any, exact: bool = True) -> None:
    """Stitched as by default for "cpu" or "h200"; for "all in kernels" with whatever is local in them, in both ways."""
    wanted = [np.asarray(w) for w in jax.tree.leaves(jax.jit(function)(*args))]

    found = []
    with light():
        if way == "cpu":
            found.append(stitch_jit(function, strict=True)(*args))
        elif way == "h200":
            found.append(jax.jit(stitch(function, strict=True, schedule_device=way))(*args))
        else:
            for seed, device in enumerate(("cpu", "h200")):
                with forced.everything_pays(seed):
                    found.append(jax.jit(stitch(function, strict=True, schedule_device=device))(*args))
    for results in found:
        for got, want in zip(jax.tree.leaves(results), wanted, strict=True):
            if exact:
                np.testing.assert_array_equal(np.asarray(got), want)
            else:
                np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Few different values, so that equal ones occur."""
    return np.random.default_rng(0).integers(-40, 41, shape).astype(jnp.dtype(dtype))


SORTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "scaled": (lambda a: jnp.sort(a) * 2, (1024,), "float32"),
    "scaled, short": (lambda a: jnp.sort(a) + 1, (33,), "float32"),
    "scaled, halves": (lambda a: jnp.sort(a) * 2, (130,), "bfloat16"),
    "scaled, integers, descending": (lambda a: -jnp.sort(-a) * 3, (257,), "int32"),
    "places": (lambda a: jnp.argsort(a) * 2, (1024,), "float32"),
    "taken along": (lambda a: jnp.take_along_axis(a, jnp.argsort(a), 0) * 2, (512,), "float32"),
    "rows": (lambda a: jnp.sort(a) * 2, (2, 2048), "float32"),
    "more rows": (lambda a: jnp.sqrt(jnp.sort(a) + 40), (64, 65), "float32"),
    "columns": (lambda a: jnp.sort(a, 0) * 2, (100, 6), "float32"),
    "greatest across rows": (lambda x: jnp.sort(x, -1).max(1), (6, 4, 2), "float32"),
    "sum across rows": (lambda x: jnp.sort(x, -1).sum(0), (6, 4, 3), "int32"),
    "columns, then across": (lambda x: jnp.sort(x, 0).max(1), (6, 33), "float32"),
    "middle, then across": (lambda x: jnp.sort(x, 1).min(-1), (3, 7, 5), "float32"),
    "along what is sorted": (lambda x: jnp.sort(x, 0).sum(0), (65, 5), "int32"),
    "first place, then across": (lambda x: jnp.argsort(x, -1)[..., 0].sum(-1), (6, 4, 2), "float32"),
    "last place, then across": (lambda x: jnp.argsort(x, -1)[..., -1].max(0), (6, 4, 5), "float32"),
    "top one, then across": (lambda x: lax.top_k(x, 1)[1].sum(1), (6, 4, 2), "float32"),
    "top two, both results": (lambda x: [r.sum(0) for r in lax.top_k(x, 2)], (5, 3, 9), "float32"),
    "keys and values": (lambda x: lax.sort((x, x * x), dimension=0, num_keys=1)[1].max(1), (9, 4), "float32"),
    "turned round": (lambda x: jnp.sort(x, -1)[::-1].T * 2, (4, 9), "float32"),
    "flattened": (lambda x: jnp.sort(x, -1).reshape(-1) * 2, (4, 8), "float32"),
    "sorted twice": (lambda x: jnp.sort(jnp.sort(x, 0), 1) * 2, (9, 12), "float32"),
    "scanned": (lambda x: jnp.cumsum(jnp.sort(x, -1), 0), (5, 8), "int32"),
    "scans both ways, then across": (lambda x: jnp.cumsum(x, 1).max(1) + jnp.cumsum(x, 0).sum(1), (5, 5), "int32"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SORTS)
def test_sorts_are_split_along_other_dimensions_alone(name: str, way: str) -> None:
    function, shape, dtype = SORTS[name]
    check(way, function, numbers(shape, dtype))


def _histogram(bins: int) -> Callable[..., Any]:
    return lambda a: jnp.histogram(a, bins)[0]


TABLES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "histogram": (_histogram(10), ((1600,),)),
    "histogram of rows": (jax.vmap(_histogram(5)), ((16, 64),)),
    "interpolation": (lambda a, x, y: jnp.interp(a, jnp.sort(x), y), ((64,), (32,), (32,))),
    "interpolation of rows": (jax.vmap(lambda a, x, y: jnp.interp(a, jnp.sort(x), y)), ((8, 9), (8, 16), (8, 16))),
    "periodic interpolation": (lambda a, x, y: jnp.interp(a, x, y, period=7.0), ((33,), (9,), (9,))),
    "search": (lambda a, v: jnp.searchsorted(jnp.sort(a), v) * 2, ((40,), (16, 10))),
    "search from the right": (lambda a, v: jnp.searchsorted(jnp.sort(a), v, side="right") + 1, ((33,), (65,))),
    "search in each row": (jax.vmap(lambda a, v: jnp.searchsorted(jnp.sort(a), v)), ((9, 17), (9, 3))),
    "digits": (lambda a, b: jnp.digitize(a, jnp.concatenate([jnp.sort(b) - 50, jnp.sort(b)])), ((65,), (6,))),
    "edges made from the values": (lambda a: jnp.histogram(a, 7)[0].astype(jnp.float32) * a.max(), ((333,),)),
    "density": (lambda a: jnp.histogram(a, 8, density=True)[0], ((128,),)),
    "quantiles": (lambda a: jnp.quantile(a, jnp.asarray([0.1, 0.5])), ((65,),)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLES)
def test_tables_that_rows_read_at_their_own_places(name: str, way: str) -> None:
    """A choice between what was read was written once for all rows, above what tells them apart."""
    function, shapes = TABLES[name]
    rng = np.random.default_rng(1)
    check(way, function, *(rng.standard_normal(s).astype(np.float32) for s in shapes), exact=False)


def _greedy(steps: int) -> Callable[..., Any]:
    return lambda x: lax.fori_loop(0, steps, lambda i, c: c.at[jnp.argmax(c)].add(-1.0), x)


def _expn_like(x: Any) -> Any:
    """Reductions of two arrays before a loop, whose result every step reads."""
    best = jnp.argmax(x)
    return lax.fori_loop(0, 4, lambda i, c: c * 0.5 + best.astype(jnp.float32), x)


LOOPS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "an exponential integral": (lambda x: jax.scipy.special.expn(2, jnp.abs(x) + 0.1), (33,)),
    "greatest place before a loop": (_expn_like, (100,)),
    "greatest place of each row before a loop": (jax.vmap(_expn_like), (7, 9)),
    "greatest place in a loop": (jax.vmap(_greedy(3)), (33, 4)),
    "greatest place of all in a loop": (_greedy(3), (9,)),
    "both extrema": (lambda x: lax.fori_loop(0, 3, lambda i, c: c - jnp.argmin(x) + jnp.argmax(x), x), (40,)),
    "a loop of one trip": (
        jax.grad(lambda x: lax.scan(lambda c, _: (jnp.tanh(c), c), x, None, length=1)[0].sum()),
        (9,),
    ),
    "two loops, the second reads the first's slice": (
        lambda x: lax.scan(
            lambda c, _: (c * 0.5 + lax.scan(lambda d, _: (d + 1, d), x, None, length=2)[1][1], c), x, None, length=3
        )[1],
        (9,),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_beside_reductions_and_their_own_slices(name: str, way: str) -> None:
    function, shape = LOOPS[name]
    check(way, function, np.random.default_rng(2).standard_normal(shape).astype(np.float32), exact=False)


def source_sizes(function: Callable[..., Any], sizes: tuple[int, ...], way: str) -> list[tuple[int, int]]:
    """For each size: how many operations there are, and how long the kernels' text is."""
    found = []
    for size in sizes:
        plan = stitch_jit(function).plan(jax.ShapeDtypeStruct((size,), "float32"), device=way)
        assert plan.unstitched is None
        found.append((plan.hlo.count("\n"), sum(len(k.source) for k in plan.kernels)))
    return found


FORWARD, BACKWARD = (
    lambda x: lax.associative_scan(jnp.add, x) + x,
    lambda x: lax.associative_scan(jnp.multiply, x, reverse=True),
)


@pytest.mark.parametrize(
    ("way", "function", "sizes"),
    [
        ("cpu", FORWARD, (32, 128)),
        *(
            pytest.param(way, function, (16, 64, 256, 1024, 4096, 16384), marks=pytest.mark.slow)
            for way in ("cpu", "h200")
            for function in (FORWARD, BACKWARD)
        ),
    ],
)
def test_text_grows_with_the_operations(way: str, function: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    """Choices by the index in each other doubled the text with every level: 34 s at 128 elements."""
    found = source_sizes(function, sizes, way)
    assert all(length <= 1200 * operations for operations, length in found), found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [16, 100, pytest.param(1025, marks=pytest.mark.slow)])
def test_associative_scans(size: int, way: str) -> None:
    check(
        way,
        lambda x: lax.associative_scan(jnp.add, x) * x,
        np.random.default_rng(3).integers(-3, 4, size).astype(np.float32),
    )
