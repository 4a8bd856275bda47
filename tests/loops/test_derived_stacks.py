"""Arrays that a loop stacks and that others of its tell, made of those where a later loop reads them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import graph, stitch_jit
from jax_stitch.graph.model import Graph
from jax_stitch.loops.loop_passes import IMPROVING
from jax_stitch.loops.rewrites.derived_stacks import with_derived_stacks
from jax_stitch.loops.rewrites.sink import with_sunk_producers
from jax_stitch.loops.teams import team_choice
from tests.fusion import forced

STEPS, ROWS, COLUMNS = 40, 5, 24


def two_loops(make: Any, use: Any, xs: Any, *, backwards: bool = False) -> Any:
    """A loop that stacks what ``make`` has of each step, and one that goes through that with ``use``."""

    def first(h: Any, x: Any) -> Any:
        h = jnp.tanh(h + x)
        return h, make(h, x)

    def second(total: Any, given: Any) -> Any:
        return use(total, given), None

    last, stacks = jax.lax.scan(first, jnp.zeros(xs.shape[1:], xs.dtype), xs)
    return jax.lax.scan(second, last, stacks, reverse=backwards)[0], stacks


def rewritten(fun: Any, *args: Any) -> tuple[Graph, Graph]:
    """A graph of two loops before and after, the second looked at."""
    before = forced.graph_of(fun, *args)
    _, loop = (n.id for n in before.nodes if n.op == "while")
    after = with_derived_stacks(before, loop)
    graph.verify(after)
    return before, after


def stacks_of(made: Graph) -> int:
    """How many arrays the first loop leaves, its last state among them."""
    loop = next(n.id for n in made.nodes if n.op == "while")
    return len(made.users[loop])


@pytest.fixture
def xs() -> Any:
    return np.random.default_rng(0).standard_normal((STEPS, ROWS, COLUMNS)).astype(np.float32)


def test_what_few_operations_make_again_is_not_stacked(xs: Any) -> None:
    def make(h: Any, _: Any) -> Any:
        return h, 1 - h, h * (1 - h), (1 - h) > 0.5

    def use(total: Any, given: Any) -> Any:
        return jnp.where(given[3], total * given[0] + given[1], given[2])

    before, after = rewritten(lambda xs: two_loops(make, use, xs)[0], xs)
    assert (stacks_of(before), stacks_of(after)) == (5, 2)


def test_what_is_dear_or_not_told_stays(xs: Any) -> None:
    """Catches functions computed twice, and arrays made of what is there no more, or was never stacked."""

    def make(h: Any, x: Any) -> Any:
        return h, jnp.exp(h), x * 0.5 + h, ((((h + 1) * h + 2) * h + 3) * h + 4)

    def use(total: Any, given: Any) -> Any:
        return total * given[0] + given[1] * given[2] - given[3]

    before, after = rewritten(lambda xs: two_loops(make, use, xs)[0], xs)
    assert after is before


def test_what_others_read_stays(xs: Any) -> None:
    """An array that the function returns is written anyway."""
    before, after = rewritten(lambda xs: two_loops(lambda h, _: (h, 1 - h), lambda t, g: t * g[0] + g[1], xs), xs)
    assert after is before


def test_what_is_read_by_no_loop_does_not_tell(xs: Any) -> None:
    """What would be read in its stead has to be read already."""

    def run(xs: Any) -> Any:
        def second(total: Any, given: Any) -> Any:
            return total * given, None

        def first(h: Any, x: Any) -> Any:
            h = jnp.tanh(h + x)
            return h, (h, 1 - h)

        last, (whole, rest) = jax.lax.scan(first, jnp.zeros(xs.shape[1:], xs.dtype), xs)
        return jax.lax.scan(second, last, rest)[0], whole.sum()

    before, after = rewritten(run, xs)
    assert after is before


def test_what_shares_what_it_is_made_of_is_made_in_the_body(xs: Any) -> None:
    """Of ``1 - h`` beside ``h * (1 - h)`` the one is made of the other: it became a kernel of its own."""

    def make(h: Any, _: Any) -> Any:
        return h, 1 - h, h * (1 - h)

    def use(total: Any, given: Any) -> Any:
        return total * given[0] + jnp.sin(given[1]) * given[2]

    _, after = rewritten(lambda xs: two_loops(make, use, xs)[0], xs)
    _, loop = (n.id for n in after.nodes if n.op == "while")
    sunk = with_sunk_producers(after, loop, joins=False)
    graph.verify(sunk)
    assert not [n for n in sunk.nodes if n.op in ("subtract", "multiply")]
    assert [n for n in after.nodes if n.op in ("subtract", "multiply")]


def cells(weights: Any, xs: Any) -> Any:
    """A gated cell's gradient, in which both kinds of slopes come."""

    def loss(weights: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            a, b = jnp.split(h @ weights + jnp.concatenate([x, x], -1), 2, -1)
            return jax.nn.sigmoid(a) * jnp.tanh(b) + 0.5 * h, None

        return jnp.mean(jax.lax.scan(step, jnp.zeros(xs.shape[1:], xs.dtype), xs)[0] ** 2)

    return jax.grad(loss)(weights)


@pytest.mark.parametrize("rows", [1, ROWS])
def test_gradients_are_the_same_to_the_last_bit(monkeypatch: pytest.MonkeyPatch, rows: int, xs: Any) -> None:
    """What is made again is what was stacked, of the step that reads it."""
    monkeypatch.setattr(team_choice, "is_worth", lambda *_: True)
    weights = np.random.default_rng(1).standard_normal((COLUMNS, 2 * COLUMNS)).astype(np.float32) / 5
    args = jnp.asarray(weights), jnp.asarray(xs[:, :rows])
    made = stitch_jit(cells, mode="now")
    written = sum(k.source.count("out_while") for k in made.plan(*args).kernels)
    got = np.asarray(made(*args))
    monkeypatch.setattr(IMPROVING["rematerialise-stacks"], "needs", lambda _: False)
    plain = stitch_jit(lambda *args: cells(*args), mode="now")
    assert written < sum(k.source.count("out_while") for k in plain.plan(*args).kernels)
    np.testing.assert_array_equal(got, np.asarray(plain(*args)))
