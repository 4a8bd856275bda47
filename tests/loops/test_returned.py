"""Loops whose whole state is returned, with what no step changes: belief networks, environments, filters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fusion import forced


def scanned(state: dict[str, Any], xs: Any) -> Any:
    def step(s: dict[str, Any], x: Any) -> Any:
        mean = s["mean"] + s["rate"] * (x - s["mean"])
        return {**s, "mean": mean, "count": s["count"] + 1}, jnp.tanh(mean) * s["scale"]

    return jax.lax.scan(step, state, xs)


def counted(state: dict[str, Any], xs: Any) -> Any:
    def step(i: Any, s: dict[str, Any]) -> dict[str, Any]:
        return {**s, "mean": s["mean"] * s["rate"] + xs[i % xs.shape[0]]}

    return jax.lax.fori_loop(0, 40, step, state)


def until(state: dict[str, Any], xs: Any) -> Any:
    return jax.lax.while_loop(
        lambda s: jnp.max(jnp.abs(s["mean"])) < 3.0,
        lambda s: {**s, "mean": s["mean"] * 1.25 + s["rate"], "count": s["count"] + 1},
        state,
    )


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("loop", [scanned, counted, until])
@pytest.mark.parametrize("rows", [(), (33,)], ids=["scalars", "rows"])
def test_it_is_one_kernel(loop: Any, target: str, rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    state = {k: rng.uniform(0.1, 0.9, rows).astype(np.float32) for k in ("mean", "rate", "scale")}
    state["count"] = np.int32(0)
    args = state, rng.standard_normal((60, *rows)).astype(np.float32)
    leaves, tree = jax.tree.flatten(args)

    def function(*leaves: Any) -> Any:
        return jax.tree.leaves(loop(*jax.tree.unflatten(tree, leaves)))

    made = forced.stitched(forced.hlo_of(function, *leaves), forced.device(target))
    assert not any(n.op == "while" for n in made.plan.graph.nodes if n.id not in taken(made))
    for got, want in zip(forced.run(made, leaves), jax.jit(function)(*leaves), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def taken(made: Any) -> set[int]:
    """What is in kernels."""
    return {i for kernel in made.kernels for part in kernel.scheduled.parts for i in part.pattern.nodes}
