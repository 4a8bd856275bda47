"""Calls back to Python from stitched functions: as often, with the same values and in the same order as from jitted."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from jax_stitch import stitch_jit
from jax_stitch.jit.programs.fallback import StitchWarning
from tests.side_by_side import both_raise, kernels, same

Seen = list[tuple[str, float]]
Made = Callable[[Callable[[str], Callable[..., Any]]], Callable[..., Any]]
"""From a maker of Python functions that note their calls by name, to a function that calls them."""

pytestmark = pytest.mark.filterwarnings("error::jax_stitch.jit.programs.fallback.StitchWarning")

STEPS = 5
X = jnp.linspace(-1.0, 2.0, 256 * 4096).reshape(256, 4096)
SMALL = X[:3, :4]


def rows(x: Any) -> Any:
    """What makes a kernel: two reductions along the rows."""
    y = x - x.mean(-1, keepdims=True)
    return y / jnp.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def python(seen: Seen, scale: float) -> Callable[[str], Callable[..., Any]]:
    def named(name: str) -> Callable[..., Any]:
        def call(x: Any) -> Any:
            value = np.asarray(x)
            seen.append((name, float(value.astype(np.float64).mean())))
            return value * value.dtype.type(scale)

        return call

    return named


def outcome(jit: Any, made: Made, transform: Any, args: tuple[Any, ...], calls: int) -> tuple[list[Any], Seen]:
    seen: Seen = []
    called = transform(jit(made(python(seen, 0.5))))
    results = [jax.block_until_ready(called(*args)) for _ in range(calls)]
    jax.effects_barrier()
    return results, seen


def agree(made: Made, *args: Any, transform: Any = lambda f: f, calls: int = 2, order: str = "all") -> None:
    """Results and calls as under ``jax.jit``: in the order of all, of each function's own, or in none."""
    (found, noted), (expected, wanted) = (outcome(jit, made, transform, args, calls) for jit in (stitch_jit, jax.jit))
    for a, b in zip(found, expected, strict=True):
        same(a, b)
    assert wanted, "the case calls nothing"
    if order != "all":
        key = operator.itemgetter(0) if order == "each" else None
        noted, wanted = sorted(noted, key=key), sorted(wanted, key=key)
    assert [name for name, _ in noted] == [name for name, _ in wanted]
    np.testing.assert_allclose([v for _, v in noted], [v for _, v in wanted], rtol=1e-3, atol=1e-4)


def pure(call: Callable[..., Any], x: Any) -> Any:
    return jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


def impure(call: Callable[..., Any], x: Any, ordered: bool = False) -> Any:
    return io_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=ordered)


def looped(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: lax.fori_loop(0, STEPS, lambda i, c: step(c), x)


def pure_in_a_loop(named: Any) -> Any:
    return looped(lambda x: rows(pure(named("pure"), x)) + x)


def ordered_in_a_loop(named: Any) -> Any:
    """Two functions, one of which XLA could call ahead of the other."""

    def step(x: Any) -> Any:
        a = impure(named("first"), x, ordered=True)
        b = impure(named("second"), x + 1, ordered=True)
        return rows(a + b)

    return looped(step)


def two_orders(named: Any) -> Any:
    """Prints and inputs each have an order of their own, with a token each."""

    def step(x: Any) -> Any:
        jax.debug.callback(named("debug"), x, ordered=True)
        return rows(impure(named("io"), x, ordered=True))

    return looped(step)


def unused_result(named: Any) -> Any:
    def step(x: Any) -> Any:
        impure(named("unused"), x)
        return rows(x) + x

    return looped(step)


def debugged(named: Any) -> Any:
    def step(x: Any) -> Any:
        jax.debug.callback(named("debug"), x.sum())
        return rows(x) + x

    return looped(step)


def scanned_with_branches(named: Any) -> Any:
    def run(x: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            c = lax.cond(
                i % 2 == 0,
                lambda c: rows(impure(named("even"), c, ordered=True)),
                lambda c: impure(named("odd"), rows(c), ordered=True),
                c,
            )
            return c, c.max()

        return lax.scan(step, x, jnp.arange(STEPS))

    return run


def unknown_length(named: Any) -> Any:
    def run(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3.5, lambda c: (c[0] + 1, rows(pure(named("pure"), c[1]))), (0.0, x))[1]

    return run


def nested(named: Any) -> Any:
    inner = stitch_jit(lambda x: rows(impure(named("inner"), x, ordered=True)))
    return looped(lambda x: lax.fori_loop(0, 2, lambda _, c: inner(c), x) + 1)


def without_a_loop(named: Any) -> Any:
    def run(x: Any) -> Any:
        x = rows(pure(named("pure"), rows(x) + 1))
        jax.debug.callback(named("debug"), x.max())
        return impure(named("io"), rows(x + 1), ordered=True)

    return run


def only_a_callback(named: Any) -> Any:
    """No kernel to make: the program is XLA's own."""
    return lambda x: impure(named("io"), x, ordered=True)


def nothing_returned(named: Any) -> Any:
    def run(x: Any) -> Any:
        jax.debug.callback(named("debug"), rows(x).max())
        return x

    return run


KERNELS: dict[str, tuple[Made, int]] = {
    "pure in a loop": (pure_in_a_loop, 1),
    "ordered in a loop": (ordered_in_a_loop, 1),
    "two orders": (two_orders, 1),
    "unused result": (unused_result, 1),
    "debugged": (debugged, 1),
    "scanned, with branches": (scanned_with_branches, 1),
    "of unknown length": (unknown_length, 1),
    "nested": (nested, 1),
    "without a loop": (without_a_loop, 2),
    "only a callback": (only_a_callback, 0),
    "nothing returned": (nothing_returned, 1),
}


@pytest.mark.parametrize("case", KERNELS)
def test_calls_as_under_jit_and_what_is_around_is_stitched(case: str) -> None:
    """A call lost, repeated, out of order or with other values; or nothing stitched for the sake of a call."""
    made, least = KERNELS[case]
    agree(made, X, order=order_of(made))
    assert kernels(stitch_jit(made(python([], 0.5))), X) >= least


def order_of(made: Made) -> str:
    """In which order JAX calls the functions: those whose calls have no order or another one run when they can."""
    return "each" if made in (two_orders, without_a_loop) else "all"


TRANSFORMED: dict[str, tuple[Made, Callable[..., Any]]] = {
    "gradient": (debugged, lambda f: jax.grad(lambda x: (f(x) ** 2).sum())),
    "gradient, ordered": (
        lambda named: lambda x: (jax.debug.callback(named("d"), x.sum(), ordered=True), rows(x))[1],
        lambda f: jax.value_and_grad(lambda x: (f(x) ** 2).sum()),
    ),
    "jvp": (debugged, lambda f: lambda x: jax.jvp(f, (x,), (x,))),
    "vmap": (pure_in_a_loop, lambda f: lambda x: jax.vmap(f)(x[None])),
    "vmap, unordered": (debugged, lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x + 1]))),
    "vmap of a gradient": (debugged, lambda f: lambda x: jax.vmap(jax.grad(lambda x: (f(x) ** 2).sum()))(x[None])),
    "in scan": (two_orders, lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)),
    "in cond": (ordered_in_a_loop, lambda f: lambda x: lax.cond(x.sum() < 0, f, lambda x: x, x)),
    "in jit, twice": (ordered_in_a_loop, lambda f: jax.jit(lambda x: f(f(x)))),
    "beside others": (
        without_a_loop,
        lambda f: jax.jit(lambda x: f(jax.pure_callback(lambda v: np.asarray(v) + 1, x, x)) + f(x)),
    ),
    "checkpoint": (debugged, lambda f: jax.grad(lambda x: (jax.checkpoint(f)(x) ** 2).sum())),
    "results unused": (without_a_loop, lambda f: jax.jit(lambda x: (f(x), x)[1])),
}


@pytest.mark.parametrize("case", TRANSFORMED)
def test_transformed(case: str) -> None:
    """As jax.jit, for functions that JAX has differentiated, batched, nested or pruned."""
    made, transform = TRANSFORMED[case]
    agree(made, SMALL, transform=transform, order="none" if "vmap" in case else order_of(made))


def test_donated_arguments() -> None:
    for jit in (jax.jit, stitch_jit):
        seen: Seen = []
        jitted = jit(ordered_in_a_loop(python(seen, 0.5)), donate_argnums=0)
        given = X + 0
        jax.block_until_ready(jitted(given))
        assert len(seen) == 2 * STEPS and given.is_deleted()


def test_pure_calls_whose_results_nobody_reads() -> None:
    """jax.jit leaves them out."""
    seen: Seen = []
    f = stitch_jit(lambda x: (pure(python(seen, 1.0)("pure"), x), rows(x))[1])
    jax.block_until_ready(f(X))
    assert not seen


def test_a_callback_that_raises() -> None:
    """The same error, and the function goes on working."""
    state = {"fail": True}

    def fragile(x: Any) -> Any:
        if state["fail"]:
            raise ValueError("no more")
        return np.asarray(x)

    def call(jit: Any) -> Any:
        return jax.block_until_ready(jit(looped(lambda x: rows(impure(fragile, x))))(X))

    state["fail"] = True
    errors = []
    for jit in (jax.jit, stitch_jit):
        with pytest.raises(jax.errors.JaxRuntimeError, match="no more") as caught:
            call(jit)
        errors.append(type(caught.value))
    assert errors[0] is errors[1]
    state["fail"] = False
    same(call(stitch_jit), call(jax.jit))


def test_what_jit_refuses() -> None:
    """The gradient of a call of Python, and mapping one that is in order."""
    named = python([], 0.5)
    both_raise(lambda jit: jax.grad(lambda x: jit(pure_in_a_loop(named))(x).sum())(SMALL))
    both_raise(lambda jit: jax.vmap(jit(ordered_in_a_loop(named)))(SMALL[None]))


def test_prints_what_jit_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def fun(x: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            jax.debug.print("{i}: {}", c.shape, i=i, ordered=True)
            return rows(c)

        return lax.fori_loop(0, STEPS, step, x)

    printed = []
    for jit in (jax.jit, stitch_jit):
        jax.block_until_ready(jit(fun)(X))
        jax.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") == STEPS


def test_types_that_x64_and_jax_treat_specially() -> None:
    """Integers, booleans, empty arrays, scalars, keys' data, several results and none."""

    def fun(x: Any) -> Any:
        types = [
            jax.ShapeDtypeStruct((), jnp.int32),
            jax.ShapeDtypeStruct((3,), jnp.bool_),
            jax.ShapeDtypeStruct((0, 2), jnp.bfloat16),
        ]
        made = lambda v: (np.int32(np.asarray(v).size), np.array([True, False, True]), np.zeros((0, 2), jnp.bfloat16))  # noqa: E731
        return jax.pure_callback(made, types, rows(x)), rows(x + 1)

    for jit in (jax.jit, stitch_jit):
        (count, flags, empty), _ = jit(fun)(X)
        assert count == X.size and count.dtype == jnp.int32
        assert flags.tolist() == [True, False, True] and (empty.shape, empty.dtype) == ((0, 2), jnp.bfloat16)


def test_another_function_under_the_same_program() -> None:
    """A program from the cache that calls the function it was made for, not the one of now."""

    def made(seen: Seen) -> Any:
        return stitch_jit(looped(lambda x: rows(impure(python(seen, 0.5)("io"), x, ordered=True)) * 1.0625))

    first: Seen = []
    second: Seen = []
    jax.block_until_ready(made(first)(X))
    jax.clear_caches()
    jax.block_until_ready(made(second)(X))
    assert len(first) == len(second) == STEPS


def test_autotuning_calls_nothing() -> None:
    """Calls with made-up values while programs are timed."""
    seen: Seen = []

    def step(x: Any) -> Any:
        y = rows(impure(python(seen, 0.5)("before"), x)) * 1.125
        jax.debug.callback(python(seen, 0.5)("after"), y)
        return y

    tuned = stitch_jit(looped(step), autotune="top3")
    jax.block_until_ready(tuned(X))
    jax.effects_barrier()
    assert len(seen) == 2 * STEPS
    plan = tuned.plan(X)
    assert len(seen) == 2 * STEPS
    assert plan.kernels and plan.kernels[0].measured is not None
    assert any("calls back to Python" in note for note in plan.notes)


def test_async_calls_nothing_by_itself() -> None:
    """A first run with zeros before the user's call."""
    seen: Seen = []
    f = stitch_jit(lambda x: rows(impure(python(seen, 0.5)("io"), x)) * 1.25, mode="async")
    jax.block_until_ready(f(SMALL))
    assert f.wait(60)
    jax.block_until_ready(f(SMALL))
    assert len(seen) == 2


@pytest.mark.parametrize("device", [None, "h200"])
def test_boundaries_say_why(device: str | None) -> None:
    """A reader left to guess why a loop is no kernel."""
    from jax_stitch.frontend.capture import cuda_plugin_installed

    if device is not None and not cuda_plugin_installed():
        pytest.skip("needs the CUDA plugin, to compile for a described GPU")
    plan = stitch_jit(two_orders(python([], 0.5))).plan(X, device=device)
    assert plan.kernels and all(k.launches == STEPS for k in plan.kernels)
    (reason,) = (b.reason for b in plan.boundaries if b.op == "while")
    assert "calls back to Python" in reason and "test_callbacks.py:" in reason
    assert [b.reason for b in plan.boundaries if b.op == "custom-call"] == ["a call back to Python"] * 2
    assert plan.launches <= plan.xla_launches


def test_effects_of_other_kinds_still_run_plain() -> None:
    """Mutable arrays beside a callback: an effect that the rebuilt program would not have."""

    def fun(x: Any) -> Any:
        ref = jax.new_ref(x)
        jax.debug.callback(lambda v: None, x)
        ref[...] = rows(ref[...])
        return ref[...]

    with pytest.warns(StitchWarning, match="runs as plain"):
        same(stitch_jit(fun)(SMALL), jax.jit(fun)(SMALL))
