"""``stitch_jit`` takes what ``jax.jit`` takes, returns what it returns, and traces as often."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch_jit
from tests.light import light
from tests.public_functions import W, X, scaled, softmax
from tests.side_by_side import both, counted, kernels, same

__all__ = ["light"]

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


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
