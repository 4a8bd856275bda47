"""``stitch_jit`` takes what ``jax.jit`` takes, returns what it returns, and traces as often."""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import re
import sys
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.jit import lowering
from tests.side_by_side import both, both_raise, counted, fallbacks, kernels, same

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)
W = jnp.linspace(0.5, 1.5, 4)


def softmax(x: Any, w: Any = 1.0) -> Any:
    """Has two reductions along a row: the smallest thing that XLA leaves apart on a CPU."""
    e = jnp.exp(x * w - jnp.max(x * w, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def scaled(x: Any, axis: int = -1, *, scale: float = 1.0) -> Any:
    """Softmax, scaled."""
    return jax.nn.softmax(x, axis) * scale


class Pair(NamedTuple):
    a: Any
    b: Any


@jax.tree_util.register_pytree_node_class
class Box:
    """A pytree that is no tuple, and refuses to be made of anything but an array."""

    def __init__(self, value: Any, label: str) -> None:
        assert hasattr(value, "shape")
        self.value, self.label = value, label

    def tree_flatten(self) -> tuple[tuple[Any], str]:
        return (self.value,), self.label

    @classmethod
    def tree_unflatten(cls, label: str, children: tuple[Any]) -> Box:
        box = object.__new__(cls)
        box.value, box.label = children[0], label
        return box


@dataclasses.dataclass(frozen=True)
class Settings:
    """A static argument: hashable, and no pytree."""

    scale: float
    axis: int = -1


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    mean: Any
    count: Any
    name: str = dataclasses.field(default="s", metadata={"static": True})


def test_the_function_used_here_is_stitched() -> None:
    """Or all that follows would compare ``jax.jit`` with itself."""
    assert kernels(stitch_jit(softmax), X, W) == 1


# What an argument or a result can be.

ARGUMENTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "one array": (softmax, (X,)),
    "two arrays": (softmax, (X, W)),
    "numpy": (softmax, (np.asarray(X), np.asarray(W))),
    "a Python float": (softmax, (X, 2.0)),
    "a Python int": (softmax, (X, 2)),
    "a Python bool": (softmax, (X, True)),
    "a Python complex": (lambda x, c: jnp.abs(x * c), (X, 1 + 2j)),
    "a numpy scalar": (softmax, (X, np.float32(2))),
    "a weak array": (softmax, (X, jnp.asarray(2.0))),
    "weak in, weak out": (lambda a, b: a * b + 1, (2.0, 3.0)),
    "tuple": (lambda t: softmax(*t), ((X, W),)),
    "dict": (lambda d: {"y": softmax(d["x"]), "x": d["x"]}, ({"x": X, "w": W},)),
    "nested": (lambda t: [softmax(t[0]["x"]), (t[1],)], ([{"x": X}, W],)),
    "namedtuple": (lambda p: Pair(softmax(p.a), p.b), (Pair(X, W),)),
    "custom pytree": (lambda b: Box(softmax(b.value), b.label + "!"), (Box(X, "x"),)),
    "registered dataclass": (lambda s: State(softmax(s.mean), s.count + 1, s.name + "t"), (State(X, 3),)),
    "jax.tree_util.Partial": (lambda p, x: p(softmax(x)), (jax.tree_util.Partial(jnp.multiply, W), X)),
    "None": (lambda x, n: (softmax(x), n), (X, None)),
    "None inside": (lambda t: {"y": softmax(t["x"]), "n": t["n"]}, ({"x": X, "n": None},)),
    "empty containers": (lambda x, a, b: (softmax(x), a, b), (X, (), {})),
    "zero size": (softmax, (jnp.zeros((0, 4)), W)),
    "zero size reduced": (lambda x: jnp.sum(x, 0), (jnp.zeros((0, 4)),)),
    "scalar": (lambda x: jnp.sin(x) * x, (jnp.float32(2),)),
    "bfloat16": (softmax, (X.astype(jnp.bfloat16), W.astype(jnp.bfloat16))),
    "float16": (softmax, (X.astype(jnp.float16), W.astype(jnp.float16))),
    "integers": (lambda x: (x // 3, x.sum(0)), (jnp.arange(12).reshape(3, 4),)),
    "booleans": (lambda x: (~x, x.any(0), x.sum()), (X > 0,)),
    "complex": (lambda x: (x * x.conj()).sum(-1), (X + 1j * X,)),
    "key": (lambda k: jax.random.normal(k, (3, 4)), (jax.random.key(0),)),
    "key out": (lambda k, x: (jax.random.split(k), softmax(x)), (jax.random.key(0), X)),
    "keys": (lambda k: jax.vmap(lambda k: jax.random.uniform(k, (4,)))(k), (jax.random.split(jax.random.key(0), 3),)),
    "old key": (lambda k: softmax(jax.random.normal(k, (3, 4))), (jax.random.PRNGKey(0),)),
    "rbg key": (lambda k: jax.random.normal(k, (3, 4)), (jax.random.key(0, impl="rbg"),)),
    "no argument": (lambda: softmax(jnp.arange(8.0).reshape(2, 4)), ()),
    "nothing in, nothing out": (lambda: None, ()),
    "identity": (lambda x, w: (x, w, x), (X, W)),
    "identity beside work": (lambda x, w: (x, softmax(x, w), x, softmax(x, w)), (X, W)),
    "constants out": (lambda x: (softmax(x), 1, 2.5, True, np.arange(3), None), (X,)),
    "only constants": (lambda x: (1, np.float32(2.0)), (X,)),
    "twice the same result": (lambda x: (lambda y: (y, y))(softmax(x)), (X,)),
    "closed-over array": (lambda x: softmax(x * W), (X,)),
    "large closed-over array": (lambda x: softmax(x + jnp.ones((2048, 4))[:3]), (X,)),
    "unused argument": (lambda x, unused: softmax(x), (X, jnp.ones(1000))),
    "unused key": (lambda x, unused: softmax(x), (X, jax.random.key(0))),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_and_results(case: str) -> None:
    fun, args = ARGUMENTS[case]
    both(fun, *args)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128", "float32"])
def test_x64(dtype: str) -> None:
    """A kernel must have the types of the mode that the function is called in, both ways round."""
    values = np.arange(12).reshape(3, 4)
    fun = softmax if dtype.startswith("float") else (lambda x: (x * x, x.sum(-1)))
    both(fun, values.astype(dtype))
    with jax.enable_x64(True):
        result = both(fun, values.astype(dtype))
        assert jax.tree.leaves(result)[0].dtype == dtype


def test_x64_scalars_in_one_function() -> None:
    """One jitted function in both modes: the traces must not be mixed up."""
    stitched, plain = stitch_jit(softmax), jax.jit(softmax)
    same(stitched(np.asarray(X, np.float64), 2.0), plain(np.asarray(X, np.float64), 2.0))
    with jax.enable_x64(True):
        same(stitched(np.asarray(X, np.float64), 2.0), plain(np.asarray(X, np.float64), 2.0))
    same(stitched(np.asarray(X, np.float64), 2.0), plain(np.asarray(X, np.float64), 2.0))


# What a function can be, and how it can be called.


def test_with_and_without_parentheses() -> None:
    @stitch_jit
    def a(x: Any) -> Any:
        return softmax(x)

    @stitch_jit()
    def b(x: Any) -> Any:
        return softmax(x)

    @stitch_jit(static_argnums=1)
    def c(x: Any, n: int) -> Any:
        return softmax(x) * n

    @functools.partial(stitch_jit, static_argnames=("n",))
    def d(x: Any, n: int) -> Any:
        return softmax(x) * n

    for found, factor in ((a(X), 1), (b(X), 1), (c(X, 2), 2), (d(X, n=2), 2)):
        same(found, jax.jit(lambda x, factor=factor: softmax(x) * factor, static_argnums=1)(X, factor))


class Model:
    def __init__(self, w: Any) -> None:
        self.w = w

    @stitch_jit
    def on_pytree(self, x: Any) -> Any:
        return softmax(x, self.w)

    @functools.partial(stitch_jit, static_argnums=0)
    def on_static(self, x: Any) -> Any:
        return softmax(x, self.w)

    @staticmethod
    @stitch_jit
    def on_nothing(x: Any) -> Any:
        return softmax(x)

    @classmethod
    def on_class(cls, x: Any) -> Any:
        return stitch_jit(softmax)(x)

    def __call__(self, x: Any) -> Any:
        return softmax(x, self.w)

    def bound(self, x: Any) -> Any:
        return softmax(x, self.w)


jax.tree_util.register_pytree_node(Model, lambda m: ((m.w,), None), lambda _, c: Model(*c))


def test_methods() -> None:
    model = Model(W)
    expected = jax.jit(softmax)(X, W)
    for found in (model.on_pytree(X), model.on_static(X), Model.on_pytree(model, X), model.on_pytree(x=X)):
        same(found, expected)
    same(model.on_nothing(X), jax.jit(softmax)(X))
    same(model.on_class(X), jax.jit(softmax)(X))
    assert model.on_pytree.__name__ == "on_pytree" and model.on_pytree.__self__ is model


CALLABLES: dict[str, Any] = {
    "partial": functools.partial(softmax, w=W),
    "partial of positional": functools.partial(lambda w, x: softmax(x, w), W),
    "partial of partial": functools.partial(functools.partial(scaled, axis=0), scale=2.0),
    "lambda": lambda x: softmax(x, W),
    "object": Model(W),
    "bound method": Model(W).bound,
    "jitted": jax.jit(softmax),
    "stitched": stitch_jit(softmax),
    "builtin": jnp.sort,
    "numpy ufunc": jnp.exp,
    "vmapped": jax.vmap(softmax),
    "gradient": jax.grad(lambda x: softmax(x).max()),
}


@pytest.mark.parametrize("case", CALLABLES)
def test_callables(case: str) -> None:
    fun = CALLABLES[case]
    stitched, plain = stitch_jit(fun), jax.jit(fun)
    same(stitched(X), plain(X))
    assert stitched.__wrapped__ is fun
    assert stitched.__name__ == (plain.__name__ if hasattr(fun, "__name__") or "partial" in case else "Model")


CALLS: dict[str, Any] = {
    "default": lambda f: f(X),
    "keyword": lambda f: f(x=X),
    "keywords": lambda f: f(scale=2.0, x=X),
    "keyword-only": lambda f: f(X, scale=3.0),
    "positional static": lambda f: f(X, 0),
    "static by keyword": lambda f: f(X, axis=0, scale=3.0),
}


@pytest.mark.parametrize("static", [{"static_argnames": "axis"}, {"static_argnums": 1}])
@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str, static: dict[str, Any]) -> None:
    outcomes = []
    for jit in (jax.jit, stitch_jit):
        run, counter = counted(scaled)
        jitted = jit(run, **static)
        outcomes.append((CALLS[case](jitted), CALLS[case](jitted), counter.runs))
    same(outcomes[1], outcomes[0])


def test_static_counted_from_the_end() -> None:
    for call in (lambda f: f(X, 0), lambda f: f(X, 0, scale=2.0)):
        same(call(stitch_jit(scaled, static_argnums=-1)), call(jax.jit(scaled, static_argnums=-1)))


def test_variadic() -> None:
    def fun(x: Any, *rest: Any, **named: Any) -> Any:
        return softmax(x), [r * 2 for r in rest], {k: v + 1 for k, v in named.items()}

    for call in (lambda f: f(X), lambda f: f(X, W, 1.0), lambda f: f(X, W, b=2, a=X)):
        same(call(stitch_jit(fun)), call(jax.jit(fun)))


# Options of jax.jit.


@pytest.mark.parametrize("value", [Settings(2.0), Settings(2.0, 0), "mean", None, (1, 2), np.float32, jnp.sin, 3])
def test_static_values(value: Any) -> None:
    def fun(x: Any, s: Any) -> Any:
        assert s is value
        return softmax(x) * (s.scale if isinstance(s, Settings) else 1.0)

    same(stitch_jit(fun, static_argnums=1)(X, value), jax.jit(fun, static_argnums=1)(X, value))
    same(stitch_jit(fun, static_argnames="s")(X, s=value), jax.jit(fun, static_argnames="s")(X, s=value))


def test_static_argument_that_holds_arrays() -> None:
    """A static object stays what it is even where it is a pytree of arrays: nothing of it may be traced."""
    box = Box(np.asarray(W), "w")

    def fun(x: Any, b: Box) -> Any:
        assert b is box and isinstance(b.value, np.ndarray)
        return softmax(x, b.value)

    same(stitch_jit(fun, static_argnums=1)(X, box), jax.jit(fun, static_argnums=1)(X, box))


def test_static_values_trace_again() -> None:
    run, counter = counted(scaled)
    stitched = stitch_jit(run, static_argnames=("axis", "scale"))
    for axis, scale in ((0, 1.0), (1, 1.0), (0, 1.0), (0, 2.0)):
        same(stitched(X, axis, scale=scale), jax.jit(scaled, static_argnames=("axis", "scale"))(X, axis, scale=scale))
    assert counter.runs == 3


@pytest.mark.parametrize(
    "options",
    [
        {"keep_unused": True},
        {"inline": True},
        {"compiler_options": {"xla_cpu_enable_fast_math": False}},
        {"in_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])},
        {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])},
        {"out_shardings": None, "in_shardings": None},
        {"donate_argnums": ()},
    ],
    ids=lambda options: "+".join(options),
)
def test_options(options: dict[str, Any]) -> None:
    both(softmax, X, W, **options)
    if "compiler_options" not in options:  # JAX takes them on the outermost jit only
        both(softmax, X, W, transform=lambda f: jax.jit(lambda x, w: f(x, w) * 2), **options)


def test_shardings_on_a_mesh_of_one() -> None:
    mesh = jax.make_mesh((1,), ("i",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    found = both(softmax, X, W, in_shardings=(sharding, None), out_shardings=sharding)
    assert found.sharding.is_equivalent_to(sharding, 2)
    both(softmax, jax.device_put(X, sharding), W)


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "x"}, {"donate_argnums": (0,)}])
def test_donation(options: dict[str, Any]) -> None:
    """The buffer is given up and used again, as under ``jax.jit``."""
    for jit in (jax.jit, stitch_jit):
        x = X + 0.0
        pointer = x.unsafe_buffer_pointer()
        result = jit(softmax, **options)(x, W)
        assert x.is_deleted()
        assert result.unsafe_buffer_pointer() == pointer
        same(result, jax.jit(softmax)(X, W))


def test_unused_arguments_are_dropped() -> None:
    """As ``jax.jit`` drops them: a large unused array must not be kept on the device, or even be passed."""

    def fun(x: Any, unused: Any) -> Any:
        return softmax(x)

    def parameters(jit: Any, **options: Any) -> int:
        return len(jit(fun, **options).lower(X, W).compile().input_shardings[0])

    text = stitch_jit(fun).lower(X, W).as_text()
    assert text.count("tensor<4xf32>") == 0
    assert stitch_jit(fun, keep_unused=True).lower(X, W).as_text().count("tensor<4xf32>") > 0
    assert parameters(stitch_jit) == parameters(jax.jit)


# The other methods.


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
    assert (stitched.__name__, stitched.__doc__, stitched.__module__) == ("scaled", "Softmax, scaled.", __name__)
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
    assert f'"{__file__}"' in text and "operation.py" not in text and "api.py" not in text


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


# Traces and calls.


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


def test_nothing_to_stitch_is_what_jit_compiles() -> None:
    """A product alone, and a loop whose body is XLA's: the same instructions, so the same time."""

    def run(w: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), xs[0], xs)

    args = jnp.eye(256), jnp.ones((5, 64, 256))
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


# The user's own errors.


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


@pytest.mark.parametrize("case", ["shapes", "its own", "bool of a tracer"])
def test_tracebacks_are_those_of_jit(case: str) -> None:
    """The frames that a user sees are the user's own."""

    def frames(jit: Any) -> list[str]:
        with pytest.raises(Exception) as caught:
            ERRORS[case](jit)
        return [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(caught.value.__traceback__)]

    assert frames(stitch_jit) == frames(jax.jit)


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
