"""``stitch_jit`` beside ``jax.jit``: lowering, tracing, caches, threads, and errors of the user's own."""

from __future__ import annotations

import functools
import gc
import inspect
import re
import sys
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.jit import lowering
from jax_stitch.jit.tiers.stitched_function import ModeName
from tests.light import light
from tests.public_functions import W, X, scaled, softmax
from tests.side_by_side import both, both_raise, counted, fallbacks, kernels, same

__all__ = ["light"]


def test_lower_compile_and_call() -> None:
    stitched, plain = stitch_jit(softmax), jax.jit(softmax)
    lowered = stitched.lower(X, W)
    compiled = lowered.compile()
    same(compiled(X, W), plain(X, W))
    assert "jit_softmax" in lowered.as_text() and "jit_softmax" in compiled.as_text()
    assert compiled.memory_analysis() is not None and lowered.args_info == plain.lower(X, W).args_info
    assert lowered.out_info == plain.lower(X, W).out_info


def test_trace_and_eval_shape() -> None:
    stitched, plain = stitch_jit(softmax), jax.jit(softmax)
    shape = jax.ShapeDtypeStruct((3, 4), jnp.bfloat16)
    assert stitched.eval_shape(shape, 1.0) == plain.eval_shape(shape, 1.0)
    assert jax.eval_shape(stitched, shape) == jax.eval_shape(plain, shape)
    traced = stitched.trace(X, W)
    assert traced.fun_name == "softmax" and traced.out_info == plain.trace(X, W).out_info
    same(traced.lower().compile()(X, W), plain(X, W))


def test_clear_cache_traces_again() -> None:
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(softmax)
        jitted = jit(run)
        jitted(X), jitted(X)
        jitted.clear_cache()
        jitted(X)
        assert counter.runs == 2
    run, counter = counted(softmax)
    stitched = stitch_jit(run)
    stitched(X)
    jax.clear_caches()
    same(stitched(X), jax.jit(softmax)(X))
    assert counter.runs == 2


def test_signature_name_and_documentation() -> None:
    stitched = stitch_jit(scaled, static_argnames="axis")
    assert inspect.signature(stitched) == inspect.signature(scaled)
    assert (stitched.__name__, stitched.__doc__) == ("scaled", "Softmax, scaled.")
    assert stitched.__module__ == scaled.__module__
    assert stitched.__wrapped__ is scaled and stitched.jit_options == {"static_argnames": "axis"}
    assert type(stitched) is type(jax.jit(scaled))


def test_the_plan_takes_arguments_as_a_call_does() -> None:
    stitched = stitch_jit(scaled, static_argnames="axis")
    expected = [(k.schedule, k.bytes_read, k.bytes_written) for k in stitched.plan(X, 0, scale=2.0).kernels]
    assert expected
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    for args, kwargs in (((shape, 0), {}), ((X,), {"axis": 0}), ((), {"x": shape, "axis": 0})):
        plan = stitched.plan(*args, scale=2.0, **kwargs)
        assert [(k.schedule, k.bytes_read, k.bytes_written) for k in plan.kernels] == expected
        assert plan.function == "scaled"


def test_kernels_know_the_users_lines() -> None:
    """Also where the program is compiled for a call, not only in a plan; and no file of ours comes between."""
    text = stitch_jit(lambda x: softmax(x)).lower(X).as_text(debug_info=True)
    assert (
        f'"{__file__}"' in text and "operation.py" not in text and "primitive.py" not in text and "api.py" not in text
    )


def test_disable_jit() -> None:
    """Then every operation runs by itself, on concrete values."""
    with jax.disable_jit():
        run, counter = counted(lambda x: x * 2 if x.sum() > 0 else x)
        same(stitch_jit(run)(X), X * 2)
        assert counter.runs == 1


def test_debug_nans_and_checks() -> None:
    with jax.debug_nans(True):
        both(softmax, X, W)
        with pytest.raises(FloatingPointError):
            stitch_jit(lambda x: softmax(x) * jnp.log(x))(-jnp.abs(X))
    with jax.checking_leaks():
        both(softmax, X, W)


def test_one_trace_for_each_shape() -> None:
    run, counter = counted(softmax)
    stitched = stitch_jit(run)
    for x in (X, X + 1, X[:2], X, X.astype(jnp.bfloat16), X[:2], np.asarray(X)):
        stitched(x)
    assert counter.runs == 3


def test_a_fallback_traces_once_too() -> None:
    def fun(x: Any) -> Any:
        return softmax(jax.new_ref(x)[...])

    with fallbacks() as messages:
        both(fun, X)
    assert messages


@pytest.mark.parametrize("use", ["lower", "trace", "eval_shape"])
def test_looking_does_not_trace_again(use: str) -> None:
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(softmax)
        jitted = jit(run)
        getattr(jitted, use)(X)
        jitted(X)
        assert counter.runs == 1


def test_a_plan_shares_the_trace() -> None:
    run, counter = counted(softmax)
    stitched = stitch_jit(run)
    stitched(X), stitched.plan(X), stitched.plan(X)
    assert counter.runs == 1


def test_two_jits_of_one_function_share_the_trace() -> None:
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(softmax)
        jit(run)(X), jit(run)(X)
        assert counter.runs == 1


def test_planned_once_for_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second lowering of the same trace (another program around it) takes the kernels of the first."""
    plans: list[Any] = []
    original = lowering.rebuild
    monkeypatch.setattr(lowering, "rebuild", lambda *a, **k: plans.append(a) or original(*a, **k))
    stitched = stitch_jit(lambda x: softmax(x) + 1)
    stitched(X), stitched.lower(X), jax.jit(lambda x: stitched(x) + stitched(x + 1))(X)
    assert len(plans) == 1


@pytest.mark.usefixtures("only_new_objects")
def test_plans_end_with_their_functions() -> None:
    """What is remembered of a function must not keep it, or the arrays it closes over, alive."""

    def use() -> tuple[weakref.ref, weakref.ref]:
        stitched = stitch_jit(lambda x: softmax(x) + 3)
        stitched(X), jax.grad(lambda x: stitched(x).max())(X)
        inner = stitched.trace(X).jaxpr.eqns[0].params["jaxpr"]
        assert inner in lowering._memos
        return weakref.ref(stitched.__wrapped__), weakref.ref(inner)

    references = use()
    jax.clear_caches()
    gc.collect()
    assert [r() for r in references] == [None, None]


def test_threads_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    original = lowering.rebuild

    def slow(*args: Any, **options: Any) -> Any:
        plans.append(args)
        time.sleep(0.2)
        return original(*args, **options)

    monkeypatch.setattr(lowering, "rebuild", slow)
    run, counter = counted(lambda x: softmax(x) + 2)
    stitched = stitch_jit(run)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(stitched, [X] * 8):
            same(found, jax.jit(lambda x: softmax(x) + 2)(X))
    assert len(plans) == 1 and counter.runs == 1


def test_a_call_costs_what_a_call_of_jit_costs() -> None:
    """The very object: no Python of ours runs in a call."""
    stitched = stitch_jit(softmax)
    stitched(X, W)
    assert type(stitched).__call__ is type(jax.jit(softmax)).__call__
    calls: list[Any] = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        stitched(X, W)
    finally:
        sys.setprofile(None)
    assert calls == []


@pytest.mark.usefixtures("zen3")
def test_nothing_to_stitch_is_what_jit_compiles() -> None:
    """A product alone, and a loop whose body is XLA's: the same instructions, so the same time."""

    def run(w: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), xs[0], xs)

    args = jnp.eye(1024), jnp.ones((5, 64, 1024))
    assert not stitch_jit(run).plan(*args).kernels
    texts = [jit(run).lower(*args).compile().as_text() for jit in (jax.jit, stitch_jit)]
    plain, stitched = (sorted(re.findall(r"= (\S+) ([a-z-]+)\(", text)) for text in texts)
    assert stitched == plain


def test_stitch_alone() -> None:
    """Under ``jax.jit``, and by itself; what is no array is part of the function."""
    same(jax.jit(stitch(softmax))(X, W), jax.jit(softmax)(X, W))
    same(jax.jit(stitch(softmax))(X, 2.0), jax.jit(softmax)(X, 2.0))
    same(stitch(scaled)(X, 0, scale=2.0), jax.jit(scaled, static_argnums=1)(X, 0, scale=2.0))
    assert kernels(stitch(softmax), X) == 1


def fails_on_shapes(x: Any, w: Any) -> Any:
    return softmax(x) @ w[:3]


def fails_by_itself(x: Any) -> Any:
    raise KeyError("mine")


def branches_on_a_value(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def branches_on_a_dictionary(params: Any) -> Any:
    return 1 if params["w"][0] else 0


ERRORS: dict[str, Any] = {
    "shapes": lambda jit: jit(fails_on_shapes)(X, W),
    "its own": lambda jit: jit(fails_by_itself)(X),
    "bool of a tracer": lambda jit: jit(branches_on_a_value)(X),
    "bool of a leaf": lambda jit: jit(branches_on_a_dictionary)({"w": W}),
    "array of a tracer": lambda jit: jit(lambda x: np.asarray(x))(X),
    "int of a tracer": lambda jit: jit(lambda x: jnp.zeros(int(x.sum())))(X),
    "boolean index": lambda jit: jit(lambda x: x[x > 0])(X),
    "result that is no array": lambda jit: jit(lambda x: "text")(X),
    "argument that is no array": lambda jit: jit(softmax)("text"),
    "nested argument that is no array": lambda jit: jit(softmax)({"a": [object()]}),
    "missing argument": lambda jit: jit(fails_on_shapes)(X),
    "unknown keyword": lambda jit: jit(softmax)(X, unheard_of=1),
    "unhashable static": lambda jit: jit(softmax, static_argnums=1)(X, [1]),
    "static out of range": lambda jit: jit(softmax, static_argnums=7)(X),
    "static name unknown": lambda jit: jit(softmax, static_argnames="q")(X),
    "unknown option": lambda jit: jit(softmax, unheard_of=1),
    "no function": lambda jit: jit(3),
    "no function but options": lambda jit: jit(static_argnums=0)(3),
    "static and donated": lambda jit: jit(softmax, static_argnums=0, donate_argnums=0)(X),
    "donated twice": lambda jit: [f := jit(softmax, donate_argnums=0), x := X + 0, f(x), f(x)],
    "shardings unlike arguments": lambda jit: jit(softmax, in_shardings=(None, None, None))(X),
    "mapped away": lambda jit: jax.vmap(jit(softmax))(1.0),
    "gradient of a vector": lambda jit: jax.grad(jit(softmax))(X),
    "gradient of integers": lambda jit: jax.grad(jit(lambda x: x.sum()))(jnp.arange(3)),
    "lower without arguments": lambda jit: jit(softmax).lower(),
    "wrong type for compiled": lambda jit: jit(softmax).lower(X).compile()(X[:2]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_the_users_own(case: str) -> None:
    both_raise(ERRORS[case])


@pytest.mark.parametrize("mode", ["now", "auto", "async"])
@pytest.mark.parametrize("case", ["shapes", "its own", "bool of a tracer"])
def test_tracebacks_are_those_of_jit(case: str, mode: ModeName) -> None:
    """The frames that a user sees are the user's own."""

    def frames(jit: Any) -> list[str]:
        with pytest.raises(Exception) as caught:
            ERRORS[case](jit)
        return [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(caught.value.__traceback__)]

    assert frames(functools.partial(stitch_jit, mode=mode)) == frames(jax.jit)


def test_a_leaked_tracer_is_told_as_under_jit() -> None:
    def call(jit: Any) -> None:
        leaked: list[Any] = []
        jit(lambda x: leaked.append(x))(X)
        leaked.pop() + 1

    error = both_raise_without_text(call)
    assert isinstance(error, jax.errors.UnexpectedTracerError)


def both_raise_without_text(call: Any) -> BaseException:
    errors = []
    for jit in (jax.jit, stitch_jit):
        with pytest.raises(Exception) as caught:
            call(jit)
        errors.append(caught.value)
    assert type(errors[0]) is type(errors[1])
    return errors[1]
