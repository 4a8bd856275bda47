"""Factorizations and solves of small matrices, written out, are those of LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
import scipy.linalg
from jax.lax import linalg

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.graph.model import Graph
from jax_stitch.graph.rewrites.factorizations import LARGEST, with_expansions
from jax_stitch.graph.verifier import verify
from tests.hlo_files.programs import after


def calls(graph: Graph) -> int:
    """Return how many calls of libraries a graph has."""
    inner = sum(calls(g) for n in graph.nodes for g in n.graphs.values())
    return inner + sum(n.op in ("custom-call", "triangular-solve", "cholesky") for n in graph.nodes)


def expanded(function: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """Return what the program gives with its factorizations written out."""
    graph = graphs.build(hlo_parser.parse(after(function, *args)))
    assert calls(graph)
    graph = with_expansions(graph)
    verify(graph)
    assert not calls(graph)
    return [np.asarray(r) for r in jax.jit(replay(StitchedGraph(graph)))(jax.tree.leaves(args))]


def matrices(*dims: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(dtype)


def positive(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    a = matrices(*dims, dtype=np.float64)
    return (a @ np.swapaxes(a, -1, -2) + np.eye(dims[-1])).astype(dtype)


SHAPES = [(1, 1), (2, 2), (3, 3), (LARGEST, LARGEST), (5, 4, 4), (2, 3, 6, 6), (7, 1, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cholesky(shape: tuple[int, ...], upper: bool, dtype: Any) -> None:
    """Catches a column that is subtracted too early, the wrong triangle and batches that are mixed up."""
    with jax.enable_x64(True):
        a = positive(*shape, dtype=dtype)
        (found,) = expanded(lambda a: jnp.linalg.cholesky(a, upper=upper), a)
    want = np.linalg.cholesky(a.astype(np.float64))
    want = np.swapaxes(want, -1, -2) if upper else want
    assert found.dtype == dtype
    np.testing.assert_allclose(found, want, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-6)


@pytest.mark.parametrize("diagonal", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("at", range(4))
def test_what_is_not_positive_fails_as_in_lapack(at: int, diagonal: float) -> None:
    """Catches a failure that is not seen, or that of one matrix of a batch in another."""
    a = np.stack([positive(4, 4)] * 3)
    a[1, at, at] = diagonal
    (found,) = expanded(jnp.linalg.cholesky, a)
    want = np.asarray(jax.jit(jnp.linalg.cholesky)(a))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (1, 5), (3, LARGEST, 2)], ids=str)
def test_triangular_solves(left: bool, lower: bool, transposed: bool, unit: bool, shape: tuple[int, ...]) -> None:
    """Catches the order of rows, a row for a column, and a diagonal that is divided by or not."""
    *batch, size, others = shape
    a = (matrices(*batch, size, size) / 4 + 2 * np.eye(size)).astype(np.float32)
    b = matrices(*batch, *((size, others) if left else (others, size)), seed=1)
    form = {"left_side": left, "lower": lower, "transpose_a": transposed, "unit_diagonal": unit}
    (found,) = expanded(lambda a, b: linalg.triangular_solve(a, b, **form), a, b)
    one = a.astype(np.float64)
    triangle = np.tril(one) if lower else np.triu(one)
    if unit:
        triangle = triangle * (1 - np.eye(size)) + np.eye(size)
    wide = np.swapaxes(triangle, -1, -2) if transposed else triangle
    back = wide @ found if left else found @ wide
    np.testing.assert_allclose(back, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [*SHAPES, (4, 6), (6, 4), (3, 2, 5)], ids=str)
def test_lu(shape: tuple[int, ...]) -> None:
    """Catches an exchange of the wrong rows, a row that is forgotten by an earlier exchange, and pivots of ties."""
    a = matrices(*shape)
    a[..., 0, :] = a[..., -1, :] * 0.5
    found = expanded(linalg.lu, a)
    for got, want in zip(found, jax.jit(linalg.lu)(a), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [*SHAPES, (6, 4), (3, 5, 2), (4, 6)], ids=str)
def test_qr(shape: tuple[int, ...], mode: str) -> None:
    """Catches the sign of a reflection, and one that reaches columns that are done."""
    a = matrices(*shape)
    a[..., :, 0] *= 3
    found = expanded(lambda a: jax.tree.leaves(jnp.linalg.qr(a, mode=mode)), a)
    for got, want in zip(found, jax.tree.leaves(jax.jit(lambda a: jnp.linalg.qr(a, mode=mode))(a)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_qr_of_very_small_and_large_columns(scale: float) -> None:
    """Catches a length whose square overflows, and a reflection of a column that needs none."""
    a = matrices(4, 4)
    a[:, 1] *= np.float32(scale)
    a[2:, 0] = 0
    q, r = expanded(jnp.linalg.qr, a)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(q @ r, a, rtol=1e-4, atol=1e-5 * max(1, scale))


@pytest.mark.parametrize(
    "rows",
    [[[0, 0], [0, 0]], [[0, 1], [0, 2]], [[2, -2], [-2, 2]], [[-0.0, 1], [3, -0.0]]],
    ids=["zero", "no first column", "singular", "negative zero"],
)
def test_lu_of_what_has_no_inverse(rows: list[list[float]]) -> None:
    """Catches a division by a pivot that is zero, where LAPACK leaves the column."""
    a = np.asarray(rows, np.float32)
    for got, want in zip(expanded(linalg.lu, a), jax.jit(linalg.lu)(a), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("at", [(0, 0), (1, 0), (2, 1), (2, 2)])
def test_a_nan_is_in_the_solution(at: tuple[int, int]) -> None:
    """Catches a NaN that is lost because it is no greater than another pivot. (OpenBLAS loses the first one.)"""
    a, b = matrices(3, 3), matrices(3, 1, seed=1)
    a[at] = np.nan
    (found,) = expanded(jnp.linalg.solve, a, b)
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (jnp.linalg.solve, np.linalg.solve),
        (lambda a, b: jnp.linalg.inv(a) @ b, lambda a, b: np.linalg.solve(a, b)),
        (lambda a, b: jnp.linalg.det(a) * b, lambda a, b: np.linalg.det(a) * b),
        (lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b, trans=1), lambda a, b: np.linalg.solve(a.T, b)),
        (jsl.expm, None),
    ],
    ids=["solve", "inv", "det", "transposed", "expm"],
)
def test_what_is_made_of_them(function: Callable[..., Any], other: Callable[..., Any] | None) -> None:
    a, b = matrices(5, 5) + 2 * np.eye(5, dtype=np.float32), matrices(5, 2, seed=1)
    if other is None:
        (found,), want = expanded(lambda a: function(a * 0.3), a), scipy.linalg.expm(a.astype(np.float64) * 0.3)
    else:
        (found,), want = expanded(function, a, b), other(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: jnp.linalg.cholesky(a),
        lambda a: linalg.lu(a)[0],
        lambda a: linalg.triangular_solve(a, a[..., :1], left_side=True, lower=True),
    ],
    ids=["cholesky", "lu", "solve"],
)
def test_larger_matrices_stay_calls(function: Callable[..., Any]) -> None:
    a = positive(LARGEST + 1, LARGEST + 1)
    graph = graphs.build(hlo_parser.parse(after(function, a)))
    assert calls(with_expansions(graph)) == calls(graph) > 0
