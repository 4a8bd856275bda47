"""Functions of functions in a sweep of their own, on a CPU: which those are, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.emit import emit
from jax_stitch.fusion import explore
from jax_stitch.schedule import schedule
from tests.fusion import forced

STEPS, ROWS, HIDDEN = 12, 4, 64
FUNCTIONS = "st::tanh(", "st::exp(", "st::sin(", "st::log("


def lstm(carry: Any, x: Any, u: Any) -> Any:
    h, c = carry
    i, f, g, o = jnp.split(x + h @ u, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return (jax.nn.sigmoid(o) * jnp.tanh(c), c), (jnp.tanh(c), f)


def gru(carry: Any, x: Any, u: Any) -> Any:
    h, c = carry
    a, b, n, _ = jnp.split(x + h @ u, 4, -1)
    r, z = jax.nn.sigmoid(a), jax.nn.sigmoid(b)
    return ((1 - z) * jnp.tanh(n * r) + z * h, c), None


def apart(carry: Any, x: Any, u: Any) -> Any:
    """None waits for another."""
    h, c = carry
    i, f, g, o = jnp.split(x + h @ u, 4, -1)
    return (jnp.tanh(i) + jnp.sin(f), c + jnp.tanh(g) * jnp.sin(o)), None


def pair(carry: Any, x: Any, u: Any) -> Any:
    """One waits for one other."""
    h, c = carry
    i, *_ = jnp.split(x + h @ u, 4, -1)
    return (jnp.sin(jnp.tanh(i)) + 1, c), None


def moved(carry: Any, x: Any, u: Any) -> Any:
    """What waits reads others' places."""
    h, c = carry
    i, f, g, o = jnp.split(x + h @ u, 4, -1)
    late = jnp.tanh(jnp.sin(i)[:, ::-1] + jnp.tanh(f))
    return (late, c * 0.5 + jnp.log(1 + late * late) * jnp.tanh(g + o)), late


def truths(carry: Any, x: Any, u: Any) -> Any:
    """What crosses is a truth, and what waits waits again."""
    h, c = carry
    i, f, g, o = jnp.split(x + h @ u, 4, -1)
    above = jnp.tanh(i) * jnp.sin(f) > 0.1
    late = jnp.where(above, jnp.sin(jnp.tanh(g) + o), jnp.tanh(jnp.sin(o)))
    return (jnp.tanh(late), jnp.where(above, c, late)), above


CELLS = (lstm, gru, apart, pair, moved, truths)


def program(cell: Callable[..., Any], *, rows: int = ROWS) -> tuple[Any, tuple[Any, ...]]:
    rng = np.random.default_rng(3)
    u = rng.standard_normal((HIDDEN, 4 * HIDDEN)) * HIDDEN**-0.5
    xs = rng.standard_normal((STEPS, rows, 4 * HIDDEN))

    def run(u: Any, xs: Any) -> Any:
        zero = jnp.zeros((xs.shape[1], HIDDEN), xs.dtype)
        return jax.lax.scan(lambda carry, x: cell(carry, x, u), (zero, zero), xs)

    return run, (u, xs)


def functions_of(cell: Callable[..., Any], device: str, rows: int = ROWS) -> list[int]:
    """How many functions each sweep of a step calls, those with any."""
    run, args = program(cell, rows=rows)
    target = devices.get(device)
    plan = explore(forced.graph_of(run, *(a.astype(np.float32) for a in args)), target)
    texts = [emit(schedule(plan.graph, k, target, "kernel")).text for k in plan.kernels]
    (text,) = (t for t in texts if "for (index step = 0" in t)
    step = text[text.index("for (index step = 0") :]
    sweeps = step.split("ST_EACH_")[1:]
    counts = [sum(sweep.count(name) for name in FUNCTIONS) for sweep in sweeps]
    return [n for n in counts if n]


@pytest.mark.parametrize(
    ("cell", "counts"),
    [(lstm, [4, 1]), (gru, [2, 1]), (apart, [4]), (pair, [2]), (truths, [4, 2, 1])],
)
def test_what_waits_has_a_sweep_of_its_own(cell: Callable[..., Any], counts: list[int]) -> None:
    assert functions_of(cell, "cpu") == counts


def test_few_places_stay_together() -> None:
    assert functions_of(lstm, "cpu", rows=1) == [5]


def test_on_a_gpu_threads_overlap_anyway() -> None:
    assert functions_of(lstm, "h200") == [5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_values(cell: Callable[..., Any], dtype: Any) -> None:
    run, args = program(cell)
    with jax.enable_x64(True):
        exact = jax.tree.leaves(jax.jit(run)(*args))
        made = jax.tree.leaves(stitch_jit(run, mode="now", strict=True)(*(a.astype(dtype) for a in args)))
    for a, b in zip(exact, made, strict=True):
        if a.dtype == bool:
            assert np.mean(np.asarray(a) == np.asarray(b)) > 0.999
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == np.float32 else 1e-11, atol=1e-5)
