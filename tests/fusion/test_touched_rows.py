"""Gradients of tables that are never written: the rewritten program gives what XLA gives, wherever indices point, and
what is no such gradient stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_stitch import devices, stitch_jit
from jax_stitch import graph as graphs
from jax_stitch.devices.cpu import CPU_VARIABLE
from jax_stitch.frontend.capture.function import capture
from jax_stitch.frontend.capture.module import module_of
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion.rewrites import touched_rows
from jax_stitch.pipeline import stitch_capture

CPU = devices.get("cpu")
ROWS, WIDTH, LOOKUPS = 40, 6, 12

Made = tuple[graphs.Graph, graphs.Graph]


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def places(seed: int = 0, low: int = 0, high: int = ROWS, count: int = LOOKUPS, dtype: Any = np.int32) -> np.ndarray:
    found = np.random.default_rng(seed).integers(low, high, count).astype(dtype)
    found[:3] = found[3]  # Some rows have several updates.
    return found


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few rows are rewritten too."""
    monkeypatch.setattr(touched_rows, "pays", lambda graph, table, device: True)


def made(fun: Callable[..., Any], args: Sequence[Any], donated: Sequence[int] = ()) -> Made:
    """The graph of a function, and what it is rewritten to."""
    captured = capture(fun, args, CPU, donated=donated)
    graph = graphs.build(module_of(captured.text))
    graph = replace(graph, layouts=graph.layouts.with_homes(captured.homes))
    return graph, touched_rows.touched_rows(graph, CPU)


def dense(graph: graphs.Graph) -> list[graphs.Node]:
    """The scatters that add up updates, of a table's shape."""
    return [n for n in graph.nodes if n.op == "scatter" and n.graphs["to_apply"].nodes[-1].op != "parameter"]


def agree(fun: Callable[..., Any], *args: Any, tolerance: float = 2e-6) -> graphs.Graph:
    """Asserts that the rewritten graph gives what the function gives; returns it."""
    before, after = made(fun, args)
    assert after is not before
    shapes = {n.tensor.dims for n in dense(before)}
    assert all(n.tensor.dims not in shapes or n.tensor.dtype == "s32" for n in dense(after))
    leaves = [jnp.asarray(a) for a in jax.tree.leaves(args)]
    got = jax.jit(replay(StitchedGraph(after)))(leaves)
    for g, w in zip(got, jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), tolerance, tolerance)
    return after


def descend(table: Any, at: Any, updates: Any) -> Any:
    return table - 0.1 * jnp.zeros_like(table).at[at].add(updates)


BOUNDS = (0, ROWS), (-ROWS, ROWS), (-2 * ROWS, 2 * ROWS), (ROWS, 2 * ROWS)


@pytest.mark.parametrize(
    ("mode", "bounds"),
    [*((mode, bounds) for mode in ("drop", "clip") for bounds in BOUNDS), ("promise_in_bounds", BOUNDS[0])],
)
def test_rows_wherever_indices_point(mode: Any, bounds: tuple[int, int]) -> None:
    def fun(table: Any, at: Any, updates: Any) -> Any:
        return table - 0.1 * jnp.zeros_like(table).at[at].add(updates, mode=mode)

    agree(fun, normal(0, ROWS, WIDTH), places(1, *bounds), normal(2, LOOKUPS, WIDTH))


@pytest.mark.parametrize("how", ["add", "max", "min", "multiply", "set"])
def test_whatever_updates_are_combined_by(how: str) -> None:
    def fun(table: Any, at: Any, updates: Any) -> Any:
        return table * 0.5 + jnp.tanh(getattr(jnp.full_like(table, 0.75).at[at], how)(updates))

    agree(fun, normal(0, ROWS, WIDTH), places(), normal(2, LOOKUPS, WIDTH))


@pytest.mark.parametrize(
    ("table", "updates"),
    [((ROWS,), (LOOKUPS,)), ((ROWS, 3, 4), (LOOKUPS, 3, 4)), ((ROWS, 1), (LOOKUPS, 1))],
)
def test_tables_of_any_rank(table: tuple[int, ...], updates: tuple[int, ...]) -> None:
    agree(descend, normal(0, *table), places(), normal(2, *updates))


def test_rows_in_the_middle() -> None:
    def fun(table: Any, at: Any, updates: Any) -> Any:
        return table - 0.1 * jnp.zeros_like(table).at[:, at].add(updates)

    agree(fun, normal(0, 3, ROWS, 4), places(), normal(2, 3, LOOKUPS, 4))


def test_rows_that_two_indices_pick() -> None:
    def fun(table: Any, i: Any, j: Any, updates: Any) -> Any:
        return table - 0.1 * jnp.zeros_like(table).at[i, j].add(updates)

    i, j = places(0, -9, 9), places(1, -6, 6)
    j[1] = j[0] + 1  # The same of the first, not of the second.
    agree(fun, normal(0, 7, 5, WIDTH), i, j, normal(2, LOOKUPS, WIDTH))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, jnp.bfloat16, np.complex64])
def test_element_types(dtype: Any) -> None:
    with jax.enable_x64(True):
        table, updates = (np.asarray(4 * normal(n, *s)).astype(dtype) for n, s in ((0, (ROWS, 4)), (2, (LOOKUPS, 4))))

        def fun(table: Any, at: Any, updates: Any) -> Any:
            return table + 2 * jnp.zeros_like(table).at[at].add(updates)

        before, after = made(fun, (table, places(), updates))
        assert after is not before
        args = table, places(), updates
        (got,) = jax.jit(replay(StitchedGraph(after)))(list(args))
        wide = [np.asarray(a, np.complex128) for a in (got, jax.jit(fun)(*args))]
        np.testing.assert_allclose(wide[0], wide[1], 1e-6)


def test_indices_of_64_bits() -> None:
    with jax.enable_x64(True):
        at = places(dtype=np.int64)
        at[5] = 2**40 + 3  # Not to be taken for 3.
        agree(descend, normal(0, ROWS, WIDTH), at, normal(2, LOOKUPS, WIDTH))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(value: float) -> None:
    updates = normal(2, LOOKUPS, WIDTH)
    updates[4, 2] = value
    table = normal(0, ROWS, WIDTH)
    table[7, 1] = value
    agree(descend, table, places(), updates)


def test_zeros_keep_their_sign() -> None:
    """A donated table is taken as it is only where adding what comes of no update changes nothing, not even -0.0."""
    table = np.where(normal(0, ROWS, WIDTH) < 0, -0.0, 0.0).astype(np.float32)
    args = table, places(), np.zeros((LOOKUPS, WIDTH), np.float32)
    _, after = made(descend, args, donated=[0])
    (got,) = jax.jit(replay(StitchedGraph(after)))(list(args))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(jax.jit(descend)(*args)))
    for fun, op in (
        (descend, "parameter"),
        (lambda t, at, u: t + -0.1 * jnp.zeros_like(t).at[at].add(u), "parameter"),
        (lambda t, at, u: t + 0.1 * jnp.zeros_like(t).at[at].add(u), "add"),
        (lambda t, at, u: t - -0.1 * jnp.zeros_like(t).at[at].add(u), "subtract"),
        (lambda t, at, u: t - 0.1 * jnp.full_like(t, 2).at[at].add(u), "subtract"),
        (lambda t, at, u: 0.1 * jnp.zeros_like(t).at[at].add(u) - t, "subtract"),
    ):
        _, after = made(fun, args, donated=[0])
        assert after[after[after.results[0]].operands[0]].op == op


def adam(clip: float | None) -> tuple[Callable[..., Any], Any]:
    optimizer = optax.adam(0.01) if clip is None else optax.chain(optax.clip_by_global_norm(clip), optax.adam(0.01))

    def step(table: Any, state: Any, at: Any, wanted: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda table: ((table[at] - wanted) ** 2).mean())(table)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(table, updates), state, loss

    return step, optimizer.init(jnp.asarray(normal(0, ROWS, WIDTH)))


@pytest.mark.parametrize("clip", [None, 1e-3, 1e3])
def test_what_an_optimizer_makes_of_a_gradient(clip: float | None) -> None:
    step, state = adam(clip)
    args = normal(0, ROWS, WIDTH), state, places(1, -ROWS, ROWS), normal(2, LOOKUPS, WIDTH)
    after = agree(step, *args, tolerance=1e-5)
    assert sum(n.op == "scatter" and n.tensor.dims == (ROWS, WIDTH) for n in after.nodes) == 3


def test_a_sum_of_a_long_chain_of_squares() -> None:
    """Each operation reads the one before twice: whether it is zero is asked once."""

    def fun(table: Any, at: Any, updates: Any) -> Any:
        power = value = gradient(table, at, updates)
        for _ in range(40):
            power = power * power
        return table - 0.1 * value, power.sum()

    agree(fun, normal(0, ROWS, WIDTH), places(), np.clip(normal(2, LOOKUPS, WIDTH), -0.2, 0.2))


def test_tables_of_loops_and_branches() -> None:
    def fun(table: Any, at: Any, updates: Any) -> Any:
        def step(table: Any, x: Any) -> Any:
            return jax.lax.cond(x[0][0] > 3, lambda: descend(table, *x), lambda: table), x[1].sum()

        return jax.lax.scan(step, table, (at, updates))

    args = normal(0, 20_000, 64), np.stack([places(n, 0, 20_000, 64) for n in range(5)]), normal(2, 5, 64, 64)
    plan = stitch_capture(capture(fun, args, CPU), CPU).plan
    (body,) = [child for (_, name), child in plan.children.items() if name == "body"]
    (branch,) = [child for child in body.children.values() if any(n.op == "scatter" for n in child.graph.nodes)]
    assert len(dense(branch.graph)) == 2 and all(n.tensor.dims != (20_000, 64) for n in dense(branch.graph))
    for got, wanted in zip(stitch_jit(fun, mode="now")(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)


def gradient(table: Any, at: Any, updates: Any) -> Any:
    return jnp.zeros_like(table).at[at].add(updates)


def overlapping(table: Any, at: Any, updates: Any) -> Any:
    """Windows of three rows."""
    numbers = jax.lax.ScatterDimensionNumbers((1, 2), (), (0,))
    windows = jnp.broadcast_to(updates[:, None], (LOOKUPS, 3, WIDTH))
    return table - 0.1 * jax.lax.scatter_add(jnp.zeros_like(table), at[:, None], windows, numbers)


NOT_REWRITTEN: dict[str, Callable[..., Any]] = {
    "returned": lambda *args: (descend(*args), gradient(*args)),
    "read by a product": lambda table, *args: gradient(table, *args) @ table.T,
    "a sum that is not of zeros": lambda table, *args: (table * jnp.exp(gradient(table, *args))).sum(),
    "a sum of each row": lambda *args: (gradient(*args) ** 2).sum(1),
    "the largest": lambda *args: (gradient(*args) ** 2).max(),
    "into what is not one number": lambda table, at, updates: jnp.sin(table).at[at].add(updates) * 2,
    "beside what is in no memory": lambda table, *args: jnp.flip(table, 0) - 0.1 * gradient(table, *args),
    "windows that overlap": overlapping,
}


@pytest.mark.parametrize("name", NOT_REWRITTEN)
def test_what_is_no_such_gradient_stays(name: str) -> None:
    before, after = made(NOT_REWRITTEN[name], (normal(0, ROWS, WIDTH), places(), normal(2, LOOKUPS, WIDTH)))
    assert dense(before), "the case no longer has the scatter that it is about"
    assert after is before


def test_a_small_table_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    before, after = made(descend, (normal(0, ROWS, WIDTH), places(), normal(2, LOOKUPS, WIDTH)))
    assert after is before
    large = jax.ShapeDtypeStruct((50_000, 64), jnp.float32)
    at, updates = jax.ShapeDtypeStruct((64,), jnp.int32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert len(made(descend, (large, at, updates))[1]) > len(made(descend, (large, at, updates))[0])
    # As many updates as rows: nothing is saved.
    at, updates = jax.ShapeDtypeStruct((50_000,), jnp.int32), jax.ShapeDtypeStruct((50_000, 64), jnp.float32)
    before, after = made(descend, (large, at, updates))
    assert after is before


@pytest.mark.parametrize(
    ("optimizer", "cpu"), [("adam", "sapphire-rapids"), ("descent", "zen4"), ("adam", "zen4"), ("adam", "neoverse-n1")]
)
def test_a_donated_table_is_not_copied(optimizer: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the rows that are read of it while it is changed, nor for its result: not where a stitched kernel
    reads them, and not where one of XLA's does, whose result is scattered into the changed table."""
    monkeypatch.undo()
    monkeypatch.setenv(CPU_VARIABLE, cpu)
    table, at, wanted = normal(0, 20_000, 64), places(0, 0, 20_000, 64), normal(2, 64, 64)
    if optimizer == "descent":
        args: tuple[Any, ...] = table, at, wanted
        step = stitch_jit(descend, mode="now", donate_argnums=0)
    else:
        fun, _ = adam(1.0)
        state = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)).init(jnp.asarray(table))
        args, step = (table, state, at, wanted), stitch_jit(fun, mode="now", donate_argnums=(0, 1))
    text = step.lower(*args).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert not [line for line in entry.splitlines() if "f32[20000,64]" in line and " copy(" in line]
    if optimizer == "descent":  # Nothing goes over it.
        (line,) = [line for line in entry.splitlines()[1:] if "= f32[20000,64]" in line and " parameter(" not in line]
        assert "wrapped_scatter" in line
