"""Batches of small matrices are factorized and solved in a loop of one step, where straight code does not take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, stitch_jit
from jax_stitch import graph as graphs
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion.rewrites.chosen import expandable, is_in_batch
from jax_stitch.fusion.rewrites.single_steps import in_single_step
from jax_stitch.graph.rewrites.factorizations import factorization_growth
from jax_stitch.graph.verifier import verify
from tests.hlo_files.programs import after


def positive(*dims: int) -> np.ndarray:
    a = np.random.default_rng(0).standard_normal(dims)
    return (a @ np.swapaxes(a, -1, -2) + dims[-1] * np.eye(dims[-1])).astype(np.float32)


def by_cholesky(a: Any, b: Any) -> Any:
    return jsl.cho_solve((jnp.linalg.cholesky(a), True), jnp.tanh(b)) * 2


def with_other_results(a: Any, b: Any) -> Any:
    """The factor is a result too, and what is read after the loop is made before it."""
    factor, c = jnp.linalg.cholesky(a), jnp.exp(b)
    return factor, jsl.solve_triangular(factor, b, lower=True) + c, c


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "by cholesky": (by_cholesky, 7),
    "solve": (jnp.linalg.solve, 6),
    "other results": (with_other_results, 12),
    "determinant": (lambda a, b: jnp.linalg.slogdet(a)[1] + b.sum((1, 2)), 9),
    "qr": (lambda a, b: jnp.linalg.qr(a)[1] @ b, 8),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pass_keeps_what_is_computed(name: str) -> None:
    """Catches a value that is read before the loop made it, and one of the loop's that nobody gets."""
    function, size = PROGRAMS[name]
    a, b = positive(5, size, size), np.random.default_rng(1).standard_normal((5, size, 2)).astype(np.float32)
    graph = graphs.build(hlo_parser.parse(after(function, a, b)))
    found = [n.id for n in graph.nodes if factorization_growth(graph, n) is not None]
    stepped = in_single_step(graph, found)
    assert found and stepped is not None
    verify(stepped)
    assert not any(factorization_growth(stepped, n) for n in stepped.nodes)
    want = jax.tree.leaves(jax.jit(function)(a, b))
    for got, exact in zip(jax.jit(replay(StitchedGraph(stepped)))([a, b]), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_stitched(name: str) -> None:
    function, size = PROGRAMS[name]
    a, b = positive(40, size, size), np.random.default_rng(1).standard_normal((40, size, 2)).astype(np.float32)
    for got, want in zip(
        jax.tree.leaves(stitch_jit(function)(a, b)), jax.tree.leaves(jax.jit(function)(a, b)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_batch_is_one_kernel_and_its_matrices_are_rows(zen4: None) -> None:
    """Catches a batch that one team goes through matrix by matrix: its values leave the first cache."""
    a, b = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((400, 7, 7), (400, 7, 1)))
    plan = stitch_jit(by_cholesky).plan(a, b)
    assert plan.launches < plan.xla_launches and not any("library call" in c.reason for c in plan.boundaries)


@pytest.mark.parametrize(("count", "is_expanded"), [(1, False), (4, False), (40, True)])
def test_few_matrices_are_left_to_lapack_before_they_are_planned(count: int, is_expanded: bool, zen4: None) -> None:
    """Catches seconds of planning, in every program that solves one system, for what LAPACK does in a microsecond."""
    a, b = positive(count, 6, 6), np.ones((count, 6, 1), np.float32)
    graph = graphs.build(hlo_parser.parse(after(jnp.linalg.solve, a, b)))
    assert bool(expandable(graph, devices.get("cpu"))) is is_expanded
    solves = [n for n in graph.nodes if factorization_growth(graph, n) is not None]
    assert len(solves) > 2 and {is_in_batch(graph, n, devices.get("cpu")) for n in solves} == {is_expanded}
    assert {is_in_batch(graph, n, devices.get("h200")) for n in solves} == {True}


def test_what_kernels_cannot_hold_between_two_keeps_both_outside() -> None:
    def between(a: Any, b: Any) -> Any:
        x = jsl.solve_triangular(jnp.linalg.cholesky(a), b, lower=True)
        return jnp.linalg.cholesky(jnp.fft.fft(x @ x.transpose(0, 2, 1)).real)

    a, b = positive(3, 4, 4), np.ones((3, 4, 4), np.float32)
    graph = graphs.build(hlo_parser.parse(after(between, a, b)))
    found = [n.id for n in graph.nodes if factorization_growth(graph, n) is not None]
    assert len(found) > 2 and in_single_step(graph, found) is None
