"""Carried arrays of which an iteration overwrites several elements: each update in place, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bench.small.writes import viterbi
from jax_stitch.pipeline import Stitched
from tests.fusion import forced
from tests.loops.agreement import loops_of
from tests.loops.test_next_values import made

STEPS, ROWS = 40, 96
Step = Callable[[Any, Any, Any], Any]


def exchanged(x: Any, k: Any, j: Any) -> Any:
    """Two elements change places: also one with itself."""
    a, b = x[k], x[j]
    return x.at[k].set(b).at[j].set(a)


def at_one_place(x: Any, k: Any, j: Any) -> Any:
    """The second update overwrites the first."""
    return x.at[j].set(x[k] + 1).at[j].set(x[k] * 0.5)


def accumulated(x: Any, k: Any, j: Any) -> Any:
    """Each update reads what the one before it leaves, often at the same place."""
    return x.at[j].add(1.0).at[k].add(2.0).at[(j + 1) % ROWS].add(-3.0)


def reversed_order(x: Any, k: Any, j: Any) -> Any:
    """The second value is read before the first is written."""
    a = x[j] * 0.9
    return x.at[j].set(k * 0.1).at[k].set(a)


def largest(x: Any, k: Any, j: Any) -> Any:
    """A reduction reads all of the array before it is overwritten."""
    at = jnp.argmax(x)
    return x.at[at].add(-2.0).at[(at + 1) % ROWS].add(1.0).at[j].add(1.0)


def outside(x: Any, k: Any, j: Any) -> Any:
    """Updates at places out of range are dropped."""
    return x.at[j + k].set(k * 1.0, mode="drop").at[j].set(x[k])


def of_several(x: Any, k: Any, j: Any) -> Any:
    """Slices that may overlap."""
    u, v = lax.dynamic_slice(x, (j,), (3,)), lax.dynamic_slice(x, (k,), (3,))
    return lax.dynamic_update_slice(lax.dynamic_update_slice(x, u * 0.9, (k,)), v + 0.1, (j,))


STEPS_OF: dict[str, Step] = {
    f.__name__: f for f in (exchanged, at_one_place, accumulated, reversed_order, largest, outside, of_several)
}


def loop(step: Step) -> Callable[..., Any]:
    """Return a scan that reads of the array before and after its updates, and carries a sum beside it."""

    def run(x: Any, places: Any) -> Any:
        return lax.scan(lambda carry, given: one(step, carry, given), (x, x[0] * 0), (jnp.arange(STEPS), places))

    return run


def one(step: Step, carry: Any, given: Any) -> Any:
    x, total = carry
    k, j = given
    x = step(x, k, j)
    return (x, total + x[j]), x[k] * 2


def arguments(*more: int) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, *more)).astype(np.float32)
    return x, random.integers(0, ROWS - 3, STEPS).astype(np.int32)


def without_a_loop(step: Step, x: Any, places: Any) -> tuple[Any, ...]:
    """Return what the scan leaves, operation by operation."""
    carry, ys = (jnp.asarray(x), jnp.asarray(x)[0] * 0), []
    for k, j in enumerate(places):
        carry, y = one(step, carry, (jnp.int32(k), jnp.int32(j)))
        ys.append(y)
    return *carry, jnp.stack(ys)


def updates_in(stitched: Stitched) -> list[int]:
    """Return how many updates in place each carried value has."""
    teams = [p.team for k in stitched.kernels for p in k.scheduled.parts if p.team is not None]
    return [len(c.placed) for team in teams for c in team.loop.carried if c.placed]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", STEPS_OF)
def test_updates_are_made_in_order(name: str, device: str) -> None:
    """Each of 96 places asked in each iteration whether it is one of those that are written."""
    run, args = loop(STEPS_OF[name]), arguments()
    stitched = made(run, args, device)
    assert updates_in(stitched), str(stitched.plan)
    wanted = without_a_loop(STEPS_OF[name], *args)
    for got, want in zip(forced.run(stitched, args), wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-6)


def test_rows_change_places() -> None:
    run, args = loop(exchanged), arguments(5)
    stitched = made(run, args, "cpu")
    assert updates_in(stitched) == [2], str(stitched.plan)
    for got, want in zip(forced.run(stitched, args), without_a_loop(exchanged, *args), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-6)


def test_what_is_read_too_late_is_not_in_place() -> None:
    """The array before the update is read by what depends on it: both have to be kept."""

    def step(x: Any, k: Any, j: Any) -> Any:
        after = x.at[j].set(x[k] + 1)
        at = jnp.argmax(after)
        return after.at[at].set(x[at])

    run, args = loop(step), arguments()
    stitched = made(run, args, "cpu")
    assert not updates_in(stitched)
    for got, want in zip(forced.run(stitched, args), without_a_loop(step, *args), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("zen4")
def test_exchanges_pay_by_default() -> None:
    assert loops_of(loop(exchanged), arguments())[1] == 1


@pytest.mark.usefixtures("zen4")
def test_maxima_that_all_rows_share_are_those_of_a_team() -> None:
    """A step of Viterbi's in threads: each computed all 256 maxima, which counted as one operation each."""
    function, args = viterbi()
    args = tuple(a.astype(np.float32) for a in args)
    plan, loops = loops_of(function, args)
    assert loops and "rows, one thread each" not in "".join(k.source for k in plan.kernels), str(plan)
