"""Scatters to constant places are selects: several updates of one, what lies outside, and what stays a scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph, stitch, stitch_jit
from jax_stitch.frontend.capture import capture

RNG = np.random.default_rng(0)
V = RNG.standard_normal(10).astype(np.float32)
U = RNG.standard_normal(9).astype(np.float32)
M = RNG.standard_normal((10, 10)).astype(np.float32)
CUBE = RNG.standard_normal((4, 10, 3)).astype(np.float32)
AT = np.array([3, 1, 7, 7, 2, -1, 10, -11, 3])
"""Twice the same place, one from the end, two outside."""
ROWS, COLUMNS = np.array([0, 3, 3, 9]), np.array([1, 2, 2, 0])
SEGMENTS = np.array([0, 0, 1, 2, 2, 2, 5, 5, 0, 1])


def springs(p: Any, v: Any) -> Any:
    """Bodies that pull at each other, which pairs is known."""

    def step(s: Any, _: Any) -> Any:
        force = (s[0][COLUMNS] - s[0][ROWS]) * 2.0
        total = jnp.zeros_like(s[0]).at[ROWS].add(force).at[COLUMNS].add(-force)
        return (s[0] + 0.01 * s[1], s[1] + 0.01 * total), None

    return jax.lax.scan(step, (p, v), None, length=20)[0]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda x, u: x.at[AT].add(u) * 2, (V, U)),
    "set": (lambda x, u: x.at[AT].set(u) * 2, (V, U)),
    "multiply": (lambda x, u: x.at[AT].multiply(u) + 1, (V, U)),
    "max": (lambda x, u: x.at[AT].max(u) + 1, (V, U)),
    "columns": (lambda m, u: m.at[:, AT].add(u) * 2, (M, U)),
    "rows": (lambda m, u: m.at[AT].add(u[:, None] * m[0]) * 2, (M, U)),
    "pairs": (lambda m, u: m.at[ROWS, COLUMNS].add(u[:4]) * 2, (M, U)),
    "pairs set": (lambda m, u: m.at[ROWS, COLUMNS].set(u[:4]) * 2, (M, U)),
    "pairs of a transpose": (lambda m, u: m.T.at[COLUMNS, ROWS].add(u[:4]) * 2, (M, U)),
    "middle": (lambda c, u: c.at[:, AT].add(u[:, None]) * 2, (CUBE, U)),
    "first and last": (lambda c, u: c.at[ROWS[:2] % 4, :, COLUMNS[:2]].add(u[:2, None]) * 2, (CUBE, U)),
    "integers": (lambda x: (x * 10).astype(jnp.int32).at[AT].add(3) * 2, (V,)),
    "truths": (lambda x: (x > 0).at[AT].set(True), (V,)),
    "half precision": (lambda x, u: x.astype(jnp.bfloat16).at[AT].add(u.astype(jnp.bfloat16)) * 2, (V, U)),
    "clipped": (lambda x, u: x.at[np.array([3, 1, 70])].add(u[:3], mode="clip") * 2, (V, U)),
    "all outside": (lambda x, u: x.at[np.array([30, -70])].add(u[:2]) * 2, (V, U)),
    "sums of segments": (lambda m: jax.ops.segment_sum(m * 2, SEGMENTS, num_segments=6) + 1, (M,)),
    "gradient of a look-up": (jax.grad(lambda x: (x[AT % 10] ** 3).sum()), (V,)),
    "in a loop": (springs, (M, M * 0)),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", CASES)
def test_equals_xla(name: str, device: str) -> None:
    """An update at another place, in another order, twice or not at all; one outside that is not dropped."""
    function, args = CASES[name]
    got, want = jax.jit(stitch(function, schedule_device=device))(*args), jax.jit(function)(*args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_is_in_a_kernel(name: str) -> None:
    function, args = CASES[name]
    plan = stitch_jit(function).plan(*args)
    assert plan.kernels and not [b for b in plan.boundaries if b.op == "scatter"]


STAYS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "few places of many": (lambda x, u: x.at[AT].add(u) * 2, (np.ones(100_000, np.float32), U)),
    "many updates of one": (lambda x, u: x.at[np.zeros(9, int)].add(u) * 2, (V, U)),
    "places that are data": (lambda x, u, i: x.at[i].add(u) * 2, (V, U, AT)),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays_a_scatter(name: str) -> None:
    """All of an array would be written, or each place look nine updates up."""
    function, args = STAYS[name]
    made = graph.build(hlo_parser.parse(capture(function, args, devices.get("cpu")).text))
    assert [n.op for n in made.nodes].count("scatter") == 1
