"""``compare``: what it times, counts and finds wrong."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import compare, stitch_jit
from tests.light import light

__all__ = ["light"]


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=0)


X = jnp.asarray(np.random.default_rng(0).standard_normal((129, 77), np.float32))


def test_a_plain_function_here_and_planned_elsewhere() -> None:
    steps: list[str] = []
    found = compare(softmax, X, devices=("h200",), rounds=3, seconds=0.2, step=steps.append)
    assert found.agrees and found.exact and found.speedup > 0
    assert 0 < found.error < 1e-5 and 0 < found.plain_error < 1e-5
    assert [plan.device.name for plan in found.plans][1] == "h200"
    assert "timing" in steps and "planning for h200" in steps
    text = str(found)
    for shown in ("softmax", "launches on h200 (planned)", "bytes on", "largest error against float64"):
        assert shown in text, shown
    read = json.loads(found.to_json())
    assert read["speedup"] == found.speedup
    assert read["plans"][1]["launches"]["stitched"] == found.plans[1].launches


def test_options_of_a_stitched_function_are_kept() -> None:
    """Static arguments are no valid ones without the option; of what is donated, copies are."""

    @stitch_jit(static_argnames="axis", donate_argnames="x")
    def normalised(x: jax.Array, axis: str) -> jax.Array:
        return x / x.sum({"first": 0, "last": 1}[axis], keepdims=True)

    x = jnp.abs(X) + 1
    assert compare(normalised, x, axis="last", rounds=3, seconds=0.1).agrees
    assert not x.is_deleted()


@pytest.mark.parametrize("short", [True, False])
def test_donation_is_kept(short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no copy that it costs would be counted. Catches: an argument that is used after it was donated, in the
    comparison or by the caller; an integer, which the float64 reference takes as it is.
    """
    if not short:  # So that calls are timed, and not programs that make many.
        monkeypatch.setattr("jax_stitch.util.timing.SHORT", 0.0)

    @stitch_jit(donate_argnums=(0, 1))
    def step(x: jax.Array, count: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x + jnp.tanh(y), count + 1

    x, count = X + 1, jnp.arange(4)
    found = compare(step, x, count, X, rounds=3, seconds=0.1, devices=("h200",))
    assert found.agrees and found.plain.median > 0
    assert not x.is_deleted() and not count.is_deleted() and not X.is_deleted()
    for plan in found.plans:
        assert "input_output_alias" in plan.xla_hlo and "input_output_alias" in plan.stitched_hlo


def test_a_function_that_casts_is_compared_with_jit() -> None:
    found = compare(lambda x: jnp.exp(x.astype(jnp.float32)), X, rounds=3, seconds=0.1)
    assert not found.exact and found.plain_error == 0
    assert "largest error against jax.jit" in str(found)


def test_results_that_are_rounding_noise_do_not_make_the_largest_error() -> None:
    """A bias that softmax cancels has a gradient of 0: beside it, a training step's largest error was 4.2e+17."""
    wide = jnp.tile(X, (64, 1))

    def left_over(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(x), (x - x.mean(0)).sum(0)

    found = compare(left_over, wide, rounds=3, seconds=0.1)
    assert [leaf.is_noise for leaf in found.leaves] == [False, True]
    assert found.plain_error > 100 and "1 of 2 results is rounding noise under jax.jit too" in str(found)
    row = found.rows()[-1]
    assert row[0] == "largest error against float64" and all(float(error) < 1e-5 for error in row[1:3])
    assert "rounding noise" in found._repr_html_()
    assert compare(softmax, X, rounds=3, seconds=0.1).noise() == ""


class WrongStitching:
    """Stands in for ``stitch_jit`` with kernels that compute something else."""

    def __init__(self, fun: Any, *, mode: str, **options: Any) -> None:
        assert mode == "now"
        self.run = jax.jit(fun, **options)
        self.plan = stitch_jit(fun, **options).plan

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.run(x).at[3, 5].mul(1.001)


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["jax_stitch.inspect.report.compare"], "stitch_jit", WrongStitching)
    found = compare(softmax, X, rounds=3, seconds=0.1)
    assert not found.agrees
    assert "DISAGREES" in str(found) and not json.loads(found.to_json())["agrees"]
