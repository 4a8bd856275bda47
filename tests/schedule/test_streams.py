"""Passes of whole rows that share nothing are loops of their own on a CPU; those that share something are one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch import stitch_jit
from tests.fusion import forced

CPU = forced.device("cpu")
NAMES = tuple("abcdef")


def norms(tree: dict[str, jax.Array], rate: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Steps of unlike tensors by one rate, and the sum of their squares and of their magnitudes."""
    steps = {k: jnp.tanh(x) * jnp.sqrt(rate) for k, x in tree.items()}
    squares = sum((s * s).sum() for s in steps.values())
    return steps, squares + sum(jnp.abs(s).sum() for s in steps.values())


def test_tensors_that_share_a_rate_alone_have_loops_of_their_own() -> None:
    shapes = {k: jax.ShapeDtypeStruct((300, 1000), jnp.float32) for k in NAMES}
    graph = forced.graph_of(norms, {k: jnp.zeros(s.shape) for k, s in shapes.items()}, jnp.float32(2.0))
    kernels = forced.scheduled(forced.plan_of(graph, CPU, None), CPU)
    seen: list[set[int]] = []
    for kernel in kernels:
        for part in kernel.parts:
            for row_pass in part.passes:
                read = _parameters(kernel.graph, getattr(row_pass, "partials", ()))
                if read:
                    seen.append(read)
    assert seen
    assert all(len(read) == 1 for read in seen), "a loop over rows reads two tensors that have nothing in common"


def _parameters(graph, ids) -> set[int]:
    found, waiting = set(), list(ids)
    while waiting:
        node = graph[waiting.pop()]
        if node.op == "parameter" and node.tensor.size > 1:
            found.add(node.id)
        waiting += node.operands
    return found


def test_results() -> None:
    rng = np.random.default_rng(0)
    tree = {k: rng.standard_normal((301, 1001)).astype(np.float32) for k in NAMES}
    rate = np.float32(0.3)
    steps, total = stitch_jit(norms)(tree, rate)
    exact = {k: np.tanh(x.astype(np.float64)) * np.sqrt(np.float64(rate)) for k, x in tree.items()}
    for k in NAMES:
        np.testing.assert_allclose(steps[k], exact[k], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(total, sum((s * s).sum() + np.abs(s).sum() for s in exact.values()), rtol=1e-6)


def test_a_kept_value_that_is_a_result_is_stored_after_it_is_computed() -> None:
    """Nothing that varies from row to row is read to compute it, so that only itself joins its store to it."""

    def fun(x: jax.Array, x2: jax.Array) -> tuple[jax.Array, ...]:
        kept = jnp.abs(x2) + 1
        return kept, ~kept, x + kept, x.sum()

    args = np.arange(100, dtype=np.int16), np.int16(2)
    made = forced.stitched(forced.hlo_of(fun, *args), CPU)
    (source,) = (k.source.code for k in made.kernels)
    stored = next(line for line in source.splitlines() if "ST_FIRST_LANE" in line and "[0] = " in line)
    name = stored.split(" = ")[0].split()[-1].removesuffix("[0]")
    assert 0 < source.index(f"ST_R({name}_of_row) = ") < source.index(stored)
    for got, want in zip(forced.run(made, args), fun(*map(jnp.asarray, args)), strict=True):
        np.testing.assert_array_equal(got, want)
