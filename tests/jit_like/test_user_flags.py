"""Programs under flags of JAX that users set for a whole process, in the modes of ``stitch_jit``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch import stitch_jit
from tests.light import light
from tests.side_by_side import fallbacks, same, without_addresses

__all__ = ["light"]

FLAGS: dict[str, Any] = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_debug_nans": True,
    "jax_enable_x64": True,
}
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 40), np.float32)
Y = RANDOM.standard_normal((24, 40), np.float32)
LARGE = RANDOM.standard_normal((2048, 1200), np.float32)
"""Of which a kernel works so long that it is weighed."""
PLACES = np.array([3, 1, 7, 3], np.int32)


@dataclass(frozen=True)
class Case:
    """A function, its arguments, and how it is called."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    transform: Callable[[Any], Any] = lambda jitted: jitted
    options: dict[str, Any] = field(default_factory=dict)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def normed(x: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)


def masked(x: Any, mask: Any) -> Any:
    return softmax(jnp.where(mask, x, -1e9)) * jnp.logical_not(mask).astype(x.dtype)


def quantized(n: Any) -> Any:
    wide = n.astype(jnp.int32)
    wide = wide - jnp.max(wide, -1, keepdims=True)
    return (jnp.sum(wide * wide, -1, keepdims=True) // 64 - wide).astype(jnp.int8)


def counting(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, softmax(c[1]) * 3.0), (jnp.int32(0), x))[1]


def chosen(x: Any) -> Any:
    return lax.cond(jnp.sum(x) > 0, softmax, lambda x: normed(x) * 2.0, x)


def dropped(x: Any, key: Any) -> Any:
    keep = jax.random.bernoulli(key, 0.5, x.shape)
    return softmax(jnp.where(keep, x, 0.0)) + jax.random.normal(key, x.shape, x.dtype)


def loss(x: Any, y: Any) -> Any:
    return jnp.sum(softmax(x) * normed(y))


CASES: dict[str, Case] = {
    "elementwise": Case(lambda x, y: softmax(jnp.sin(x) * y + 0.5), (X, Y)),
    "bool input": Case(masked, (X, X > 0.3)),
    "bool input of a large kernel": Case(lambda mask, x: masked(x, mask), (LARGE > 0.3, LARGE)),
    "bool results": Case(lambda x: (softmax(x) > 0.02, jnp.any(x > 2.0, -1), jnp.all(x < 2.0, -1)), (X,)),
    "count of a comparison": Case(lambda x, y: jnp.sum(x > y, -1) + jnp.count_nonzero(x > 0, axis=-1), (X, Y)),
    "reductions": Case(lambda x: (x.sum(-1), x.max(-1), x.min(-1), x.mean(), jnp.var(x, -1), x.argmax(-1)), (X,)),
    "softmax": Case(softmax, (X,)),
    "norm": Case(lambda x, w: normed(x) * w[None], (X, Y[0])),
    "norm whose weights are broadcast": Case(lambda x, w: normed(x) * w, (X, Y[0])),
    "integers and floats": Case(lambda x, n: softmax(x) * n, (X, np.arange(40, dtype=np.int32)[None])),
    "dot and norm": Case(lambda x, y: normed(softmax(x) @ y.T), (X, Y)),
    "scan": Case(lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x[0], x), (X,)),
    "scan with a counter": Case(
        lambda x: lax.scan(lambda c, _: ((c[0] + 1, jnp.tanh(c[1] + x[c[0]])), c[1]), (0, x[0]), None, length=9), (X,)
    ),
    "cumulative sum": Case(lambda x: jnp.cumsum(softmax(x), -1), (X,)),
    "while": Case(counting, (X,)),
    "fori": Case(lambda x: lax.fori_loop(0, 4, lambda i, c: softmax(c) * (i + 1).astype(c.dtype), x), (X,)),
    "cond": Case(chosen, (X,)),
    "switch": Case(lambda n, x: lax.switch(n, (softmax, normed, jnp.sin), x), (np.int32(1), X)),
    "sort": Case(lambda x: (jnp.sort(softmax(x), -1), jnp.argsort(x, -1)), (X,)),
    "gather": Case(lambda x, i: softmax(x[i] * 2.0), (X, PLACES)),
    "scatter": Case(lambda x, y, i: softmax(x.at[i].add(y[:4]).at[0].set(1.0)), (X, Y, PLACES)),
    "segments": Case(lambda x, i: jax.ops.segment_sum(softmax(x[:4]), i, 9), (X, PLACES)),
    "grad": Case(loss, (X, Y), jax.grad),
    "value and grad": Case(loss, (X, Y), functools.partial(jax.value_and_grad, argnums=(0, 1))),
    "vmap": Case(lambda x, y: softmax(x * y)[0], (X[:, None], Y[:, None]), jax.vmap),
    "inside jit": Case(lambda x, y: softmax(x) + y, (X, Y), lambda jitted: jax.jit(lambda x, y: jitted(x, y) * 2.0)),
    "donated": Case(lambda x, y: (softmax(x) + y, jnp.sum(y)), (X, Y), options={"donate_argnums": 0}),
    "static": Case(lambda x, n: softmax(x) * n, (X, 3), options={"static_argnums": 1}),
    "Python scalars": Case(lambda x, s, n: softmax(x * s) + n, (X, 2.5, 3)),
    "int8": Case(quantized, ((X * 40).astype(np.int8),)),
    "bfloat16": Case(lambda x: softmax(x * 2.0), (jnp.asarray(X, jnp.bfloat16),)),
    "bfloat16 in float32": Case(
        lambda x: normed(x.astype(jnp.float32)).astype(x.dtype), (jnp.asarray(X, jnp.bfloat16),)
    ),
    "float16 and float32": Case(lambda x, y: softmax(x) * y, (X.astype(np.float16), Y)),
    "keys": Case(dropped, (X, jax.random.key(3))),
    "float64": Case(lambda x: normed(softmax(x)), (X.astype(np.float64),)),
    "int64": Case(lambda n: jnp.cumsum(n - n.max(-1, keepdims=True), -1), ((X * 1e3).astype(np.int64),)),
    "complex": Case(lambda x, y: jnp.sum(jnp.abs(lax.complex(x, y)), -1), (X, Y)),
    "NaN": Case(lambda x: softmax(jnp.log(x)), (X,)),
    "NaN that is hidden": Case(lambda x: softmax(jnp.where(x > 0, jnp.log(x), 0.0)), (X,)),
    "NaN of an argument": Case(softmax, (np.full_like(X, np.nan),)),
    "NaN in a gradient": Case(lambda x: jnp.sum(softmax(x) * jnp.sqrt(x)), (np.zeros_like(X),), jax.grad),
    "infinities": Case(lambda x: jnp.max(x / 0.0, -1) + jnp.sum(softmax(x), -1), (X,)),
}


@contextmanager
def switched(flag: str) -> Iterator[None]:
    """A flag as the environment sets it, for all threads."""
    before = getattr(jax.config, flag)
    jax.config.update(flag, FLAGS[flag])
    try:
        yield
    finally:
        jax.config.update(flag, before)


def outcome(jit: Callable[..., Any], case: Case) -> tuple[list[Any], Exception | None]:
    """The results of some calls, or what one raises. What works in the background is waited for after each."""

    def own(*args: Any) -> Any:  # For a function of an earlier case JAX has a way that looks at fewer flags.
        return case.fun(*args)

    jitted = jit(own, **case.options)
    called, results = case.transform(jitted), []
    try:
        for _ in range(3):
            results.append(called(*(jnp.array(x) if isinstance(x, np.ndarray) else x for x in case.args)))
            if jit is not jax.jit:
                assert jitted.wait(60)
                reasons = [program.detail for program in jitted.status().programs]
                assert not any("internal error" in reason for reason in reasons), reasons
    except (TypeError, ValueError, FloatingPointError) as error:
        return results, error
    return results, None


def compare(case: Case, mode: Any) -> None:
    expected, raised = outcome(jax.jit, case)
    with fallbacks() as messages:
        found, error = outcome(functools.partial(stitch_jit, mode=mode), case)
    assert type(error) is type(raised), error or raised
    assert without_addresses(str(error)) == without_addresses(str(raised))
    same(found, expected)
    assert not messages


QUICK = {
    "jax_numpy_dtype_promotion": ("bool input of a large kernel", "integers and floats", "bfloat16 in float32", "sort"),
    "jax_numpy_rank_promotion": ("norm whose weights are broadcast", "scatter", "segments", "inside jit"),
    "jax_debug_nans": ("NaN", "NaN that is hidden", "while", "softmax"),
    "jax_enable_x64": ("scan with a counter", "int64", "float64", "gather", "keys"),
}
"""Programs of ``make test``: where a flag is most likely to matter."""


@pytest.mark.parametrize(
    ("flag", "case"),
    [
        pytest.param(flag, case, marks=[pytest.mark.every_case] if case in QUICK[flag] else [], id=f"{flag}-{case}")
        for flag in FLAGS
        for case in CASES
    ],
)
def test_flags(flag: str, case: str) -> None:
    """A flag under which a stitched function raises what ``jax.jit`` does not, or returns another value."""
    with switched(flag):
        for mode in ("now", "auto"):
            compare(CASES[case], mode)
