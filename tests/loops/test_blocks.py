"""Products inside loops of a CPU, in blocks of rows and vectors: right by NumPy's float64, and where they pay."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.fusion.graph_passes import EXPANDING
from jax_stitch.kernel import product_blocks
from jax_stitch.loops import loop_patterns
from jax_stitch.loops.cost import team_cost
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced

STEPS = 5


def normal(seed: int, *dims: int, scale: float = 1.0) -> Any:
    return np.random.default_rng(seed).standard_normal(dims) * scale


def cell(np_: Any, w: Any, u: Any, b: Any, h: Any, x: Any) -> Any:
    """A step of a recurrent net: two products whose sum is read, in its own places and in others'."""
    z = x @ w + h @ u + b
    return np_.tanh(z) + 0.1 * z[:, ::-1]


def gated(np_: Any, w: Any, u: Any, b: Any, h: Any, x: Any) -> Any:
    """Products that share an operand, and one whose steps lie apart in memory."""
    n = h.shape[1]
    a = x @ w
    r = np_.tanh(h @ u) * a
    return np_.tanh(r @ u.T / n + h @ (u * 0.5) + b)


def recurrent(cell_: Any, np_: Any, w: Any, u: Any, b: Any, h: Any, xs: Any) -> Any:
    for x in xs:
        h = cell_(np_, w, u, b, h, x)
    return h


def scanned(cell_: Any) -> Any:
    def run(w: Any, u: Any, b: Any, h: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (cell_(jnp, w, u, b, h, x), None), h, xs)[0]

    return run


def arguments(batch: int, hidden: int, inputs: int) -> tuple[Any, ...]:
    w, u = normal(0, inputs, hidden, scale=0.3), normal(1, hidden, hidden, scale=hidden**-0.5)
    return w, u, normal(2, hidden), normal(3, batch, hidden), normal(4, STEPS, batch, inputs)


def made(fun: Any, args: tuple[Any, ...]) -> Stitched:
    """The kernels for this CPU, whether or not they are worth it."""
    alone = mock.patch.object(loop_patterns, "thread_loops", lambda *_: ThreadLoops((), {}))
    worth = mock.patch.multiple(team_cost, team_seconds=lambda *_: 0.0, CALL_SECONDS=0.0)
    products = mock.patch.object(EXPANDING["expand-small-products"], "needs", lambda _: False)
    with alone, worth, products:
        return stitch_capture(capture(fun, args, devices.get("cpu")), devices.get("cpu"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell_", [cell, gated])
@pytest.mark.parametrize(
    ("batch", "hidden", "inputs"),
    [(1, 40, 9), (2, 13, 16), (3, 100, 3), (6, 32, 16), (7, 8, 8), (12, 50, 33), (16, 130, 16), (40, 24, 11)],
)
def test_by_float64(cell_: Any, batch: int, hidden: int, inputs: int, dtype: str) -> None:
    """A row of another block, steps left out, what is left of a chunk, a sum that starts wrong."""
    given = arguments(batch, hidden, inputs)
    right = recurrent(cell_, np, *given)
    with jax.enable_x64(dtype == "float64"):
        args = tuple(jnp.asarray(a, dtype) for a in given)
        stitched = made(scanned(cell_), args)
        sources = [k.source.code for k in stitched.kernels]
        assert any("ST_PRODUCT" in s for s in sources)
        (got,) = forced.run(stitched, list(args))
    limit = 3e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(np.asarray(got, np.float64), right, 0, limit * hidden**0.5)


def test_half_precision() -> None:
    """Operands that are converted before they are multiplied."""
    args = tuple(jnp.asarray(a, "bfloat16") for a in arguments(4, 32, 16))
    (got,) = forced.run(made(scanned(cell), args), list(args))
    right = np.asarray(jax.jit(scanned(cell))(*args), np.float64)
    np.testing.assert_allclose(np.asarray(got, np.float64), right, 0, 0.1)


def test_operands_at_places_that_are_data() -> None:
    """A row picked by a number that the loop carries: its address is computed in the step."""

    def run(table: Any, u: Any, first: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            at, h = carry
            h = jnp.tanh(jax.lax.dynamic_slice(table, (at, 0), (4, 24)) @ u + h)
            return ((at * 5 + 3) % 7, h), None

        return jax.lax.scan(step, (first, jnp.zeros((4, 24), table.dtype)), None, length=STEPS)[0][1]

    table, u = normal(0, 11, 24), normal(1, 24, 24, scale=0.2)
    at, right = 2, np.zeros((4, 24))
    for _ in range(STEPS):
        right, at = np.tanh(table[at : at + 4] @ u + right), (at * 5 + 3) % 7
    args = jnp.asarray(table, "float32"), jnp.asarray(u, "float32"), jnp.int32(2)
    (got,) = forced.run(made(run, args), list(args))
    np.testing.assert_allclose(got, right, 0, 2e-5)


def test_a_sum_of_products_is_kept_instead_of_them() -> None:
    """Both products of a cell were written, read, and added where the gates read them."""
    args = tuple(jnp.asarray(a, "float32") for a in arguments(8, 32, 16))
    stitched = made(scanned(cell), args)
    teams = [p.team for k in stitched.kernels for p in k.scheduled.parts if p.team is not None]
    (team,) = [t for t in teams if t.loop.trips > 1]
    of = [team.loop.body[i].op for i in team.cached if i in team.loop.intermediates]
    assert "dot" not in of and "add" in of


@pytest.mark.parametrize("name", ["lstm_128_batch_64", "gru_32_batch_64", "lstm_128_batch_64_gradient"])
@pytest.mark.usefixtures("zen4")
def test_large_batches_of_recurrent_nets_are_kernels(name: str) -> None:
    """Row by row their products took longer than XLA's, so that the loops stayed with it: now each is a kernel, of so
    many teams that there is something to share out among cores.
    """
    from bench.small.programs import PROGRAMS

    fun, given = PROGRAMS[name].make()
    args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float32), given)
    sources = [k.source for k in stitch_jit(fun).plan(*args).kernels]
    found = [int(n) for s in sources for n in re.findall(r"a loop of 32 steps, (\d+) teams", s)]
    assert len(found) == (2 if name.endswith("gradient") else 1)
    assert min(found) >= 8


def test_no_team_reads_weights_beyond_the_second_cache() -> None:
    """There each block of rows would read them from the last cache again, in every step."""
    args = tuple(jax.ShapeDtypeStruct(np.shape(a), np.float32) for a in arguments(64, 1536, 16))
    assert not any("a loop of" in k.source for k in stitch_jit(scanned(cell)).plan(*args).kernels)


@pytest.mark.parametrize("turned", [False, True])
def test_neighbouring_places_are_neighbours_where_results_lie(turned: bool) -> None:
    """Both operands of a weights' gradient can be the vector; where the weights are stored column by column, each
    element was read and written by itself, which took longer than the product.
    """

    def step(w: Any, x: Any) -> Any:
        y = jnp.tanh(x @ w)
        change = y.T @ x if turned else x.T @ y
        return w - 0.01 * change, y

    args = tuple(jnp.asarray(a, "float32") for a in (normal(0, 48, 48, scale=0.1), normal(1, 32, 48)))
    stitched = made(step, args)
    got = forced.run(stitched, list(args))
    for value, want in zip(got, step(*args), strict=True):
        np.testing.assert_allclose(value, want, 0, 2e-5)
    stores = [s for k in stitched.kernels for s in re.findall(r"out_\w+\[(.*)\] =", k.source.code)]
    assert stores and not [s for s in stores if "j *" in s]


@pytest.mark.parametrize(
    ("products", "begin"),
    [
        ([["a", "b"]], {"a", "b"}),
        ([["a", "b"], ["c"]], {"a", "b", "c"}),
        ([["a", "b"], ["b"]], set()),
        ([["a"], None], set()),
    ],
)
def test_sums_begin_at_zero_all_or_none(products: list[list[str] | None], begin: set[str]) -> None:
    """A block has several sums: where one of them goes on from an earlier product, none may begin at zero."""
    terms: Any = [None if names is None else [SimpleNamespace(sum=name) for name in names] for names in products]
    sums: Any = SimpleNamespace(steps=[SimpleNamespace(joins=None) for _ in products])
    assert product_blocks.from_zero(sums, terms) == begin
