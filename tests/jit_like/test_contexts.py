"""JAX's settings around a call, JAX's ways to look at a function, and what arguments and results may be."""

from __future__ import annotations

import collections
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from jax.sharding import SingleDeviceSharding

from jax_stitch import stitch_jit
from tests.jit_like.outcomes import SQUARE, Program, V, W, X, raises, returns, softmax
from tests.light import light

__all__ = ["light"]

KEY = jax.random.key(1)
Point = collections.namedtuple("Point", "x y")


def small(x: Any) -> Any:
    return jnp.sin(x) * 2.0


def within(context: Any, program: Program) -> Program:
    """``program`` run in a context that ``context()`` makes."""

    def run(jit: Any) -> Any:
        with context():
            return program(jit)

    return run


def around_the_second_call(context: Any, function: Any, *args: Any) -> Program:
    """Called outside, inside and outside again: what JAX traces anew must be traced anew, and no more."""

    def run(jit: Any) -> Any:
        jitted = jit(function)
        first = jitted(*args)
        with context():
            second = jitted(*args)
        return first, second, jitted(*args)

    return run


def concrete(w: Any, total: Any = jnp.sum) -> float:
    """A Python number, also while JAX is tracing."""
    with jax.ensure_compile_time_eval():
        return float(total(w))


def precision(name: str) -> Any:
    return lambda: jax.default_matmul_precision(name)


SETTINGS: dict[str, Program] = {
    "x64": within(lambda: jax.enable_x64(True), lambda jit: jit(small)(np.arange(3.0))),
    "x64 in the middle": around_the_second_call(lambda: jax.enable_x64(True), small, np.arange(3.0)),
    "x64 of a Python scalar": around_the_second_call(lambda: jax.enable_x64(True), lambda x: x * 2, 3.0),
    "x64 of an integer": within(lambda: jax.enable_x64(True), lambda jit: jit(lambda n: n * 2)(2**40)),
    "x64 inside": lambda jit: jit(lambda x: jax.enable_x64(True)(lambda: x.astype("float64"))().astype("float32"))(X),
    "32 bits inside of 64": within(
        lambda: jax.enable_x64(True), lambda jit: jit(lambda x: small(x.astype(jnp.float32)))(np.arange(3.0))
    ),
    "precision": around_the_second_call(precision("highest"), lambda x: x @ x.T, X),
    "precision of bfloat16": within(precision("bfloat16"), lambda jit: jit(lambda x: x @ x.T)(X)),
    "debug_nans": within(lambda: jax.debug_nans(True), lambda jit: jit(small)(X)),
    "debug_infs": within(lambda: jax.debug_infs(True), lambda jit: jit(small)(X)),
    "disable_jit": within(jax.disable_jit, lambda jit: jit(lambda x: small(x) if x.sum() > 0 else x)(X)),
    "disable_jit of a method": within(jax.disable_jit, lambda jit: jit(small)(np.ones(3, np.float32))),
    "numpy ranks": within(lambda: jax.numpy_rank_promotion("allow"), lambda jit: jit(jnp.add)(X, W)),
    "default device": within(lambda: jax.default_device(jax.devices()[0]), lambda jit: jit(small)(X)),
    "default generator": within(
        lambda: jax.default_prng_impl("rbg"), lambda jit: jit(lambda: jax.random.key(0))().dtype.name
    ),
    "partitionable threefry": around_the_second_call(
        lambda: jax.threefry_partitionable(False), lambda k: jax.random.normal(k, (3,)), jax.random.key(0)
    ),
    "concrete inside": lambda jit: jit(lambda x: small(x) * concrete(W))(X),
    "jitted and concrete inside": lambda jit: jax.jit(lambda x: x * concrete(W, jit(jnp.sum)))(X),
    "transfer guard": within(lambda: jax.transfer_guard("disallow"), lambda jit: jit(softmax)(X)),
    "key reuse": within(lambda: jax.debug_key_reuse(True), lambda jit: jit(jax.random.normal)(jax.random.key(3))),
    "checking leaks": within(jax.checking_leaks, lambda jit: jit(small)(X)),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case: str) -> None:
    returns(SETTINGS[case])


REFUSALS: dict[str, Program] = {
    "NaN": within(lambda: jax.debug_nans(True), lambda jit: jit(lambda x: jnp.log(x) * 2)(-X)),
    "NaN of a stitched kernel": within(lambda: jax.debug_nans(True), lambda jit: jit(softmax)(X * jnp.inf)),
    "NaN in a gradient": within(lambda: jax.debug_nans(True), lambda jit: jax.grad(jit(jnp.sqrt))(-1.0)),
    "infinity": within(lambda: jax.debug_infs(True), lambda jit: jit(lambda x: x / 0.0)(X)),
    "ranks": within(lambda: jax.numpy_rank_promotion("raise"), lambda jit: jit(jnp.add)(X, W)),
    "dtypes": within(lambda: jax.numpy_dtype_promotion("strict"), lambda jit: jit(jnp.add)(X, jnp.arange(4))),
    "transfer": within(lambda: jax.transfer_guard("disallow"), lambda jit: jit(small)(np.ones(3))),
    "key used twice": within(
        lambda: jax.debug_key_reuse(True),
        lambda jit: jit(lambda k: jax.random.normal(k) + jax.random.normal(k))(jax.random.key(0)),
    ),
    "branch on a value": lambda jit: jit(lambda x: small(x) if x.sum() > 0 else x)(X),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    raises(REFUSALS[case])


def compiled(jit: Any) -> Any:
    made = jit(lambda x, w: softmax(x) * w).lower(X, W).compile()
    return made(X, W), made(V, W), made.in_tree == jax.tree.structure(((X, W), {}))


def wrong_call(*args: Any) -> Program:
    return lambda jit: jit(small).lower(X).compile()(*args)


LOOKS: dict[str, Program] = {
    "eval_shape": lambda jit: jit(softmax).eval_shape(X).shape,
    "eval_shape of a shape": lambda jit: str(jit(softmax).eval_shape(jax.ShapeDtypeStruct((5, 2), jnp.bfloat16))),
    "jax.eval_shape": lambda jit: str(jax.eval_shape(jit(lambda x: {"a": (x, x.sum())}), X)),
    "make_jaxpr": lambda jit: str(jax.make_jaxpr(jit(softmax))(X).out_avals),
    "lower and compile": compiled,
    "lower of shapes": lambda jit: jit(small).lower(jax.ShapeDtypeStruct((3, 4), jnp.float32)).compile()(X),
    "lower with static": lambda jit: jit(lambda x, n: x * n, static_argnums=1).lower(X, 3).compile()(X),
    "lower with keywords": lambda jit: jit(lambda x, *, w: x * w).lower(X, w=W).compile()(X, w=W),
    "lower, call with a weak scalar": lambda jit: jit(lambda x, s: x * s).lower(X, 2.0).compile()(X, 3.0),
    "args_info": lambda jit: str(jit(softmax, donate_argnums=0).lower(X).args_info),
    "out_info": lambda jit: str(jit(softmax).lower(X).out_info),
    "trace": lambda jit: str(jit(softmax).trace(X).out_info),
    "trace, lower, compile": lambda jit: jit(softmax).trace(X).lower().compile()(X),
    "trace has a name": lambda jit: jit(softmax).trace(X).fun_name,
    "input shardings": lambda jit: str(jit(softmax).lower(X).compile().input_shardings),
    "output shardings": lambda jit: str(jit(softmax).lower(X).compile().output_shardings),
    "clear_cache": lambda jit: [f := jit(small), f(X), f.clear_cache(), f(X)][1:],
    "jax.clear_caches": lambda jit: [f := jit(small), f(X), jax.clear_caches(), f(X)][1:],
    "traced once for all looks": lambda jit: [f := jit(small), f.eval_shape(X), f.lower(X), f.trace(X), f(X)][4:],
    "committed": lambda jit: jit(small)(jax.device_put(X, jax.devices()[0])).committed,
    "uncommitted": lambda jit: jit(small)(X).committed,
    "placed": lambda jit: jit(lambda x: jax.device_put(small(x), SingleDeviceSharding(jax.devices()[0])))(X),
}


@pytest.mark.parametrize("case", LOOKS)
def test_looks(case: str) -> None:
    returns(LOOKS[case])


@pytest.mark.parametrize("args", [(X[:2],), (X, X), (), (X.astype(jnp.bfloat16),), (np.arange(12),)])
def test_wrong_calls_of_the_compiled(args: tuple[Any, ...]) -> None:
    raises(wrong_call(*args))


@pytest.mark.parametrize("level", ["user", "float", "index"])
@pytest.mark.filterwarnings("ignore::jax_stitch.jit.programs.fallback.StitchWarning")
def test_checkify(level: str) -> None:
    """Checks inside a stitched function are found, by the message, and a function that passes passes."""
    checks = {"user": checkify.user_checks, "float": checkify.float_checks, "index": checkify.index_checks}[level]

    def fun(x: Any, i: Any) -> Any:
        checkify.check(x.sum() < 100, "too large: {s}", s=x.sum())
        return jnp.log(small(x) + 2.1) * W[i]

    def of_arrays(x: Any, i: Any) -> Any:
        return jnp.log(x) * W[i]

    chosen = fun if level == "user" else of_arrays
    wrong = {"user": 50.0, "float": -50.0, "index": 1.0}[level]
    for x, i in ((np.ones(4, np.float32), 1), (np.full(4, wrong, np.float32), 9)):
        outside = [checkify.checkify(jit(chosen), checks)(x, i)[0].get() for jit in (jax.jit, stitch_jit)]
        assert outside[0] == outside[1]
        returns(lambda jit, x=x, i=i: str(jit(checkify.checkify(chosen, checks))(x, i)[0].get()))


def test_compilations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def logged(jit: Any) -> int:
        caplog.clear()
        with jax.log_compiles(True), caplog.at_level(logging.WARNING, "jax"):
            jit(lambda x: small(x) + 7)(X)
        return len([r for r in caplog.records if "Compiling jit(<lambda>)" in r.getMessage()])

    assert logged(stitch_jit) >= logged(jax.jit) == 1


VALUES: dict[str, Program] = {
    "namedtuple": lambda jit: jit(lambda p: Point(small(p.x), p.y))(Point(X, W)),
    "OrderedDict": lambda jit: jit(lambda d: {k: small(v) for k, v in d.items()})(collections.OrderedDict(b=X, a=W)),
    "defaultdict": lambda jit: jit(lambda d: small(d["a"]))(collections.defaultdict(list, a=X)),
    "Partial": lambda jit: jit(lambda f, x: f(x))(jax.tree_util.Partial(jnp.multiply, W), X),
    "integer keys": lambda jit: jit(lambda d: d[1] + d[2])({1: X, 2: X}),
    "deep": lambda jit: jit(lambda t: jax.tree.map(small, t))([[[[X], (W,)], {"a": [W]}]]),
    "hundred leaves": lambda jit: jit(lambda xs: [x + 1 for x in xs])([W] * 100),
    "None in and out": lambda jit: jit(lambda x, n: (n, small(x), None))(X, None),
    "generator keys": lambda jit: jit(lambda t: t)({"b": (X, None), "a": []}),
    "numpy in": lambda jit: jit(small)(np.asarray(X)),
    "numpy float64 in": lambda jit: jit(small)(np.arange(3.0)),
    "numpy scalar in": lambda jit: jit(small)(np.float16(2)),
    "numpy out": lambda jit: jit(lambda: np.arange(3))(),
    "Python out": lambda jit: jit(lambda x: (1, 2.0, True, 1j, x))(X),
    "Fortran order": lambda jit: jit(small)(np.asfortranarray(np.ones((3, 4), np.float32))),
    "strided": lambda jit: jit(small)(np.ones((6, 8), np.float32)[::2, ::2]),
    "read-only": lambda jit: jit(small)(np.broadcast_to(np.float32(1), (3, 4))),
    "big endian": lambda jit: jit(small)(np.arange(3).astype(">f4").astype("f4")),
    "bfloat16": lambda jit: jit(softmax)(X.astype(jnp.bfloat16)),
    "float8": lambda jit: jit(lambda x: x.astype(jnp.float32) * 2)(X.astype(jnp.float8_e4m3fn)),
    "int4": lambda jit: jit(lambda n: n + n)(jnp.arange(-4, 4).astype(jnp.int4)),
    "uint8 wraps": lambda jit: jit(lambda n: n * 3)(jnp.arange(90, 100).astype(jnp.uint8)),
    "bool": lambda jit: jit(lambda p: (p.sum(), ~p, p & p))(X > 0),
    "complex": lambda jit: jit(lambda z: (jnp.exp(z), z.real, jnp.abs(z)))(X + 1j * V),
    "weak": lambda jit: jit(lambda a, b: (a + b, a * X))(1, 2.0),
    "weak of bfloat16": lambda jit: jit(lambda x, s: x * s)(X.astype(jnp.bfloat16), 2.5),
    "scalar array": lambda jit: jit(small)(jnp.float32(1)),
    "empty": lambda jit: jit(lambda x: (x * 2, x.sum(0)))(jnp.zeros((0, 3))),
    "empty product": lambda jit: jit(lambda x, y: x @ y)(jnp.zeros((2, 0)), jnp.zeros((0, 3))),
    "key": lambda jit: jit(lambda k: jax.random.split(k))(jax.random.key(7)),
    "raw key": lambda jit: jit(lambda k: jax.random.fold_in(k, 3))(jax.random.PRNGKey(7)),
    "rbg key": lambda jit: jit(jax.random.normal)(jax.random.key(7, impl="rbg")),
    "keys in a tree": lambda jit: jit(lambda t: jax.random.uniform(t["k"][1]))(
        {"k": jax.random.split(jax.random.key(1))}
    ),
    "dropout": lambda jit: jit(lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x, 0))(
        jax.random.key(1), X
    ),
    "sort and top_k": lambda jit: jit(lambda x: (jnp.sort(x, 0), jax.lax.top_k(x, 2), jnp.argsort(x)))(X),
    "scatter": lambda jit: jit(lambda x, i: x.at[i].add(1.0).at[0].set(W))(X, jnp.array([0, 2, 2])),
    "gather": lambda jit: jit(lambda x, i: (x[i], x[:, i % 4], jnp.take(x, i, mode="clip")))(X, jnp.array([0, 2, 9])),
    "dynamic slices": lambda jit: jit(
        lambda x, i: jax.lax.dynamic_update_slice(x, jax.lax.dynamic_slice(x, (i, 0), (1, 4)), (0, 0))
    )(X, 2),
    "einsum": lambda jit: jit(lambda x: jnp.einsum("ij,jk,ik->i", x, SQUARE, x))(X),
    "convolution": lambda jit: jit(lambda x: jnp.convolve(x[0], W, mode="same"))(X),
    "fft": lambda jit: jit(lambda x: jnp.fft.irfft(jnp.fft.rfft(x)))(X),
    "solve": lambda jit: jit(lambda b: jnp.linalg.solve(SQUARE, b))(W),
    "cholesky": lambda jit: jit(lambda a: jnp.linalg.cholesky(a @ a.T))(SQUARE),
    "segment_sum": lambda jit: jit(lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0]), 2))(X),
    "one_hot": lambda jit: jit(lambda n: jax.nn.one_hot(n, 4))(jnp.arange(3)),
    "special functions": lambda jit: jit(lambda x: (jax.scipy.special.erf(x), jax.scipy.special.logsumexp(x, 1)))(X),
}


@pytest.mark.parametrize("case", VALUES)
def test_values(case: str) -> None:
    returns(VALUES[case])
