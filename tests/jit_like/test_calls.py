"""How a jitted function can be made and called: what ``jax.jit`` documents, beside ``stitch_jit``."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.jit_like.outcomes import SQUARE, Program, V, W, X, raises, returns, softmax
from tests.light import light

__all__ = ["light"]


def scaled(x: Any, n: int = 2, *, sign: float = 1.0) -> Any:
    return softmax(x) * n * sign


def branching(x: Any, training: bool) -> Any:
    return softmax(x) if training else x


class Linear:
    """Static by identity, unless registered."""

    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return softmax(x * self.w)

    def apply(self, x: Any, n: int = 1) -> Any:
        return softmax(x * self.w) * n

    @property
    def doubled(self) -> Any:
        return lambda x: softmax(x * self.w) * 2

    @classmethod
    def build(cls, x: Any) -> Any:
        return cls(x).w * 2

    @staticmethod
    def plain(x: Any) -> Any:
        return softmax(x)


def curried(jit: Any) -> Any:
    @jit
    def outer(x: Any) -> Any:
        @jit
        def inner(y: Any) -> Any:
            return softmax(y) + x

        return inner(x)

    return outer(X)


def by_decorator(jit: Any) -> Any:
    @functools.partial(jit, static_argnames=("training",))
    def step(x: Any, training: bool) -> Any:
        return branching(x, training)

    return step(X, training=True), step(X, training=False), step(X, True)


def redefined(jit: Any) -> Any:
    results = []
    for factor in (1, 2):

        def fun(x: Any, factor: int = factor) -> Any:
            return softmax(x) * factor

        results.append(jit(fun)(X))
    return results


def closed_over_list(jit: Any) -> Any:
    """Side effects of Python happen at each trace and at no other time."""
    seen: list[str] = []

    def fun(x: Any) -> Any:
        seen.append(str(x.shape))
        return softmax(x)

    jitted = jit(fun)
    jitted(X), jitted(X), jitted(X[:2]), jitted(V)
    return seen


def global_read_once(jit: Any) -> Any:
    """What is read from outside is what it was when the function was traced."""
    box = {"k": 1.0}
    jitted = jit(lambda x: softmax(x) + box["k"])
    first = jitted(X)
    box["k"] = 5.0
    return first, jitted(X)


CALLS: dict[str, Program] = {
    "positional": lambda jit: jit(scaled)(X, 3),
    "by keyword": lambda jit: jit(scaled)(x=X, n=3),
    "keyword-only": lambda jit: jit(scaled)(X, sign=-1.0),
    "defaults": lambda jit: jit(scaled)(X),
    "keywords in another order": lambda jit: [f := jit(scaled), f(X, n=2, sign=1.0), f(sign=1.0, n=2, x=X)][1:],
    "*args": lambda jit: jit(lambda *xs: sum(map(softmax, xs)))(X, V, X),
    "*args of another number": lambda jit: [f := jit(lambda *xs: sum(xs)), f(X), f(X, V), f(X)][1:],
    "**kwargs": lambda jit: jit(lambda **xs: {k: softmax(v) for k, v in xs.items()})(b=X, a=V),
    "**kwargs in another order": lambda jit: [f := jit(lambda **xs: xs), f(b=X, a=V), f(a=V, b=X)][1:],
    "lambda": lambda jit: jit(lambda x: softmax(x))(X),
    "partial": lambda jit: jit(functools.partial(scaled, n=3))(X),
    "partial with an array": lambda jit: jit(functools.partial(lambda w, x: softmax(x * w), W))(X),
    "partial by keyword": lambda jit: jit(functools.partial(scaled, sign=-1.0))(X, n=4),
    "callable object": lambda jit: jit(Linear(W))(X),
    "bound method": lambda jit: jit(Linear(W).apply)(X),
    "bound method with static": lambda jit: jit(Linear(W).apply, static_argnums=1)(X, 2),
    "unbound method of a static object": lambda jit: jit(Linear.apply, static_argnums=0)(Linear(W), X),
    "property that is a function": lambda jit: jit(Linear(W).doubled)(X),
    "classmethod": lambda jit: jit(Linear.build)(X),
    "staticmethod": lambda jit: jit(Linear.plain)(X),
    "builtin": lambda jit: jit(operator.add)(X, V),
    "jnp function": lambda jit: jit(jnp.linalg.norm, static_argnames="axis")(X, axis=-1),
    "ufunc": lambda jit: jit(jnp.add)(X, V),
    "jitted": lambda jit: jit(jit(softmax))(X),
    "composition": lambda jit: jit(lambda x: jit(softmax)(jit(jnp.sin)(x)))(X),
    "inner closes over outer": curried,
    "decorator with options": by_decorator,
    "made anew": redefined,
    "recursion": lambda jit: jit(lambda x: functools.reduce(lambda c, _: softmax(c), range(3), x))(X),
    "effects of Python": closed_over_list,
    "outside values": global_read_once,
    "wrapped": lambda jit: jit(functools.wraps(softmax)(lambda x: softmax(x)))(X),
    "called in a comprehension": lambda jit: [jit(softmax)(x) for x in (X, V)],
    "called by map": lambda jit: list(map(jit(softmax), [X, V])),
    "called by tree.map": lambda jit: jax.tree.map(jit(softmax), {"a": X, "b": [V]}),
    "result fed back": lambda jit: functools.reduce(lambda c, _: f(c), range(4), X) if (f := jit(softmax)) else None,
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str) -> None:
    returns(CALLS[case])


def calls_of(function: Any, *calls: Any, **options: Any) -> Program:
    """A program that makes these calls, each a tuple of arguments and keywords, of one jitted function."""

    def program(jit: Any) -> Any:
        jitted = jit(function, **options)
        return [jitted(*args, **kwargs) for args, kwargs in calls]

    return program


STATIC: dict[str, Program] = {
    "by number": calls_of(scaled, ((X, 2), {}), ((X, 3), {}), ((X, 2), {}), static_argnums=1),
    "by numbers": calls_of(branching, ((X, True), {}), ((X, False), {}), static_argnums=(1,)),
    "by name": calls_of(scaled, ((X,), {"n": 2}), ((X,), {"n": 3}), static_argnames="n"),
    "by names": calls_of(
        scaled, ((X,), {"n": 2, "sign": -1.0}), ((X, 2), {"sign": -1.0}), static_argnames=["n", "sign"]
    ),
    "by number, given by name": calls_of(branching, ((X,), {"training": True}), static_argnums=1),
    "by name, given by position": calls_of(branching, ((X, True), {}), static_argnames="training"),
    "by both": calls_of(branching, ((X, False), {}), static_argnums=1, static_argnames="training"),
    "negative": calls_of(branching, ((X, True), {}), static_argnums=-1),
    "a list of numbers": calls_of(branching, ((X, True), {}), static_argnums=[1]),
    "none": calls_of(softmax, ((X,), {}), static_argnums=()),
    "no names": calls_of(softmax, ((X,), {}), static_argnames=()),
    "a string": calls_of(lambda x, how: getattr(jnp, how)(x), ((X, "sin"), {}), ((X, "cos"), {}), static_argnums=1),
    "a function": calls_of(lambda x, f: f(softmax(x)), ((X, jnp.sin), {}), ((X, jnp.cos), {}), static_argnums=1),
    "a tuple": calls_of(lambda x, s: x.reshape(s), ((X, (4, 3)), {}), ((X, (12,)), {}), static_argnums=1),
    "a dtype": calls_of(lambda x, d: softmax(x).astype(d), ((X, jnp.bfloat16), {}), static_argnums=1),
    "None": calls_of(lambda x, n: x if n is None else x * n, ((X, None), {}), ((X, 2), {}), static_argnums=1),
    "an enum-like object": calls_of(lambda x, o: softmax(x * o.w), ((X, Linear(2.0)), {}), static_argnums=1),
    "all": calls_of(lambda a, b: jnp.zeros((a, b)), ((2, 3), {}), ((2, 3), {}), static_argnums=(0, 1)),
    "1 and True": calls_of(lambda x, n: (softmax(x), n), ((X, 1), {}), ((X, True), {}), static_argnums=1),
    "1 and 1.0": calls_of(lambda x, n: softmax(x) * n, ((X, 1), {}), ((X, 1.0), {}), static_argnums=1),
    "a default": calls_of(scaled, ((X,), {}), ((X, 2), {}), static_argnums=1),
    "in *args": calls_of(lambda x, *rest: x * rest[0], ((X, 2), {}), static_argnums=1),
}


@pytest.mark.parametrize("case", STATIC)
def test_static(case: str) -> None:
    returns(STATIC[case])


def donated(jit: Any) -> Any:
    """Some of a tree, all of a tree; what was given up is gone, the rest is not."""
    tree, kept = {"a": X + 0.0, "b": V + 0.0}, W + 0.0
    result = jit(lambda t, w: jax.tree.map(lambda x: softmax(x) * w, t), donate_argnums=0)(tree, kept)
    return result, tree["a"].is_deleted(), tree["b"].is_deleted(), kept.is_deleted()


def donated_by_name(jit: Any) -> Any:
    x, y = X + 0.0, V + 0.0
    result = jit(lambda x, y: softmax(x) + y, donate_argnames=("y",))(x=x, y=y)
    return result, x.is_deleted(), y.is_deleted()


def donated_in_turn(jit: Any) -> Any:
    step, state = jit(lambda s, x: (softmax(s + x), x.sum()), donate_argnums=(0,)), X + 0.0
    for _ in range(3):
        state, total = step(state, V)
    return state, total


OPTIONS: dict[str, Program] = {
    "keep_unused": lambda jit: jit(lambda x, y: softmax(x), keep_unused=True)(X, V),
    "unused dropped": lambda jit: jit(lambda x, y: softmax(x))(X, V),
    "inline": lambda jit: jax.jit(lambda x: jit(softmax, inline=True)(x) * 2)(X),
    "inline in a jaxpr": lambda jit: jax.make_jaxpr(lambda x: jit(jnp.sin, inline=True)(x))(X).eqns.__len__() > 0,
    "donated tree": donated,
    "donated by name": donated_by_name,
    "donated in turn": donated_in_turn,
    "nothing donated": lambda jit: jit(softmax, donate_argnums=())(X),
    "donated and static": lambda jit: jit(scaled, donate_argnums=0, static_argnums=1)(X + 0.0, 2),
    "donated under a gradient": lambda jit: jax.grad(lambda x: (jit(softmax, donate_argnums=0)(x) * V).sum())(X + 0.0),
    "device": lambda jit: jit(softmax, device=jax.devices()[0])(X).devices(),
    "backend": lambda jit: jit(softmax, backend="cpu")(X),
    "in_shardings": lambda jit: jit(softmax, in_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0]))(X),
    "out_shardings": lambda jit: jit(
        lambda x: (softmax(x), x), out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    )(X),
    "out_shardings as a prefix": lambda jit: jit(lambda x: {"a": (softmax(x), x)}, out_shardings={"a": None})(X),
    "compiler options": lambda jit: jit(softmax, compiler_options={"xla_embed_ir_in_executable": True})(X),
    "compiler options at compile": lambda jit: (
        jit(softmax).lower(X).compile(compiler_options={"xla_embed_ir_in_executable": True})(X)
    ),
    "every option": lambda jit: jit(
        scaled,
        static_argnums=1,
        static_argnames="n",
        donate_argnums=0,
        keep_unused=True,
        inline=False,
        in_shardings=None,
        out_shardings=None,
        compiler_options=None,
    )(X + 0.0, 2),
}


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.filterwarnings("ignore:.*backend and device.*:DeprecationWarning")
def test_options(case: str) -> None:
    returns(OPTIONS[case])


def fails_below(x: Any) -> Any:
    return softmax(x) @ SQUARE[:3]


ERRORS: dict[str, Program] = {
    "no function": lambda jit: jit(3),
    "no function but options": lambda jit: jit(static_argnums=0)(3),
    "too many": lambda jit: jit(softmax)(X, V),
    "too few": lambda jit: jit(softmax)(),
    "twice": lambda jit: jit(scaled)(X, 2, n=2),
    "unknown keyword": lambda jit: jit(scaled)(X, unknown=2),
    "keyword-only by position": lambda jit: jit(scaled)(X, 2, 1.0),
    "static not hashable": lambda jit: jit(scaled, static_argnums=1)(X, [2]),
    "static by name not hashable": lambda jit: jit(scaled, static_argnames="n")(X, n={}),
    "static array": lambda jit: jit(scaled, static_argnums=1)(X, np.arange(2)),
    "static tracer": lambda jit: jax.jit(lambda n: jit(scaled, static_argnums=1)(X, n))(2),
    "static number too large": lambda jit: jit(softmax, static_argnums=3)(X),
    "static number too small": lambda jit: jit(softmax, static_argnums=-3)(X),
    "static name unknown": lambda jit: jit(softmax, static_argnames="nothing")(X),
    "static number no number": lambda jit: jit(softmax, static_argnums="x")(X),
    "static name no name": lambda jit: jit(softmax, static_argnames=3)(X),
    "donated number too large": lambda jit: jit(softmax, donate_argnums=3)(X),
    "donated name unknown": lambda jit: jit(softmax, donate_argnames="nothing")(X),
    "donated and static": lambda jit: jit(scaled, donate_argnums=1, static_argnums=1)(X, 2),
    "used after donation": lambda jit: [x := X + 0.0, jit(softmax, donate_argnums=0)(x), x + 1],
    "unknown option": lambda jit: jit(softmax, optimise=True),
    "a string": lambda jit: jit(softmax)("x"),
    "an object": lambda jit: jit(softmax)(object()),
    "an object inside": lambda jit: jit(lambda t: softmax(t["a"][0]))({"a": [Linear(W)]}),
    "a set": lambda jit: jit(softmax)({1, 2}),
    "an array of strings": lambda jit: jit(softmax)(np.array(["a"])),
    "an array of objects": lambda jit: jit(softmax)(np.array([None, X], dtype=object)),
    "an integer too large": lambda jit: jit(lambda n: n + 1)(2**40),
    "result no array": lambda jit: jit(lambda x: {"a": "text"})(X),
    "result a function": lambda jit: jit(lambda x: lambda: x)(X),
    "its own": lambda jit: jit(lambda x: {}["missing"])(X),
    "its own assertion": lambda jit: jit(lambda x: exec("assert False, 'mine'"))(X),
    "shapes": lambda jit: jit(fails_below)(X),
    "shapes of a sum": lambda jit: jit(lambda x, w: softmax(x) + w)(X, W[:3]),
    "reshape": lambda jit: jit(lambda x: x.reshape(5, 5))(X),
    "concatenate": lambda jit: jit(lambda x, w: jnp.concatenate([x, w]))(X, W),
    "integer of a tracer": lambda jit: jit(lambda x, n: x.reshape(int(n)))(X, 12),
    "index of a tracer": lambda jit: jit(lambda x, n: [1, 2, 3][n])(X, 1),
    "range of a tracer": lambda jit: jit(lambda n: list(range(n)))(3),
    "if of a tracer": lambda jit: jit(branching)(X, True),
    "while of a tracer": lambda jit: jit(lambda x: next(x for _ in iter(lambda: x > 0, False)) if x else x)(1.0),
    "numpy of a tracer": lambda jit: jit(lambda x: np.sin(np.asarray(x)))(X),
    "item of a tracer": lambda jit: jit(lambda x: x.sum().item())(X),
    "format of a tracer": lambda jit: jit(lambda x: f"{x.sum():.3f}")(X),
    "mask of a tracer": lambda jit: jit(lambda x: x[x > 0])(X),
    "nonzero": lambda jit: jit(jnp.nonzero)(X),
    "unique": lambda jit: jit(jnp.unique)(X),
    "slice of a tracer": lambda jit: jit(lambda x, n: x[:n])(X, 2),
    "assignment": lambda jit: jit(lambda x: x.__setitem__(0, 1.0))(X),
    "shape of a tracer": lambda jit: jit(lambda n: jnp.zeros(n))(3),
    "hash of a tracer": lambda jit: jit(lambda x: {x: 1})(X),
    "error below a jit": lambda jit: jit(lambda x: jit(fails_below)(x))(X),
    "shardings of another structure": lambda jit: jit(lambda x: (x, x), out_shardings=(None,) * 3)(X),
    "shardings of another number": lambda jit: jit(softmax, in_shardings=(None, None))(X),
    "compiler option unknown": lambda jit: jit(softmax, compiler_options={"xla_no_such_option": 1})(X),
    "unbound axis": lambda jit: jit(lambda x: jax.lax.psum(x, "nowhere"))(X),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    raises(ERRORS[case])
