"""Operations on each element, of every type."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.replay.programs.registry import PROGRAMS, Program, X, integers, layer_norm, normal, program


@program(np.concatenate([X[0], [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30]]).astype(np.float32))
def elementary_functions(x: Any) -> Any:
    p = jnp.abs(x)
    return (
        *(f(x) for f in (jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.cbrt, jnp.arctan, jnp.sinh)),
        *(f(x) for f in (jnp.cosh, jnp.arcsinh, jnp.floor, jnp.ceil, jnp.round, jnp.sign, jnp.isfinite, lax.logistic)),
        *(f(p) for f in (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.arccosh)),
        lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        lax.erf(x),
        jnp.arcsin(x / 9),
        jnp.arctanh(x / 9),
    )


@program(np.abs(X) + 0.1, np.abs(normal(37, 53, seed=9)) + 0.1)
def special_functions(x: Any, y: Any) -> Any:
    s = jax.scipy.special
    return (
        s.gammaln(x),
        s.digamma(x),
        s.gammainc(x, y),
        s.betainc(x, y, 0.3),
        s.i0e(x),
        s.erfinv(x / 9),
        s.zeta(x + 1, y),
    )


@program(X, normal(37, 53, seed=4))
def binary_functions(x: Any, y: Any) -> Any:
    return (
        jnp.maximum(x, y),
        jnp.minimum(x, y),
        lax.rem(x, y),
        jnp.arctan2(x, y),
        jnp.power(jnp.abs(x), y),
        jnp.nextafter(x, y),
        jnp.where(x < y, x, y),
        jnp.clip(x, -0.5, y),
        lax.clamp(np.float32(-0.3), x, np.float32(0.4)),
        x > y,
        x != y,
        jnp.copysign(x, y),
        jnp.hypot(x, y),
        jnp.logaddexp(x, y),
        lax.reduce_precision(x, 5, 7),
    )


def _arithmetic(dtype: Any, a: Any, b: Any) -> Any:
    x, y = a.astype(dtype), b.astype(dtype)
    found = x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y), jnp.abs(x), jnp.sign(x)
    return *found, jnp.maximum(x, y), x < y, -x, lax.clamp(x, y, y), x**3, ~x ^ y


def _bits(dtype: Any, a: Any, b: Any) -> Any:
    x, y = a.astype(dtype), b.astype(dtype)
    shifted = lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y)
    return *shifted, lax.population_count(x), lax.clz(x), x & y, x | y


for _functions, _types in (
    (_arithmetic, ("int8", "int16", "int32", "uint8", "uint16", "uint32")),
    (_bits, ("int32", "uint8", "uint16", "uint32")),  # of int8 and int16, XLA:CPU itself crashes
):
    for _type in _types:
        PROGRAMS[f"{_functions.__name__.strip('_')}_of_{_type}"] = Program(
            partial(_functions, _type),
            tuple(integers(40, low=-128, high=128, dtype=np.int64, seed=s) for s in (5, 6)),
            exact=True,
        )


@program(
    integers(40, low=-(2**62), high=2**62, dtype=np.int64),
    integers(40, low=0, high=80, dtype=np.int64),
    exact=True,
    x64=True,
)
def integers_of_64_bits(a: Any, b: Any) -> Any:
    u, v = a.astype(jnp.uint64), b.astype(jnp.uint64)
    return (
        a * b,
        lax.div(a, b),
        lax.shift_right_arithmetic(a, b),
        u * v,
        u >> v,
        u // (v + 1),
        lax.clz(u),
        a.sum(),
        u.astype(float),
    )


@program(normal(37, 53, dtype=np.float64), x64=True)
def floats_of_64_bits(x: Any) -> Any:
    return layer_norm(x, x[0], x[1]), jnp.exp(x), jnp.linalg.norm(x), jnp.sort(x), jnp.fft.fft(x)


@program(X > 0, normal(37, 53, seed=8) > 0, exact=True)
def booleans(a: Any, b: Any) -> Any:
    return (
        a & b,
        a | b,
        ~a,
        a ^ b,
        a < b,
        a == b,
        a.any(0),
        a.all(1),
        a.sum(),
        jnp.where(a, b, ~b),
        jnp.maximum(a, b),
        a.max(0),
    )


@program(normal(21) + 1j * normal(21, seed=5), normal(21, seed=6))
def complex_numbers(z: Any, x: Any) -> Any:
    z = z.astype(jnp.complex64)
    w = lax.complex(x, x * 2)
    return (
        z * w,
        z / w,
        jnp.exp(z),
        jnp.abs(z),
        z.real,
        z.imag,
        jnp.conj(z),
        jnp.sqrt(z),
        z == w,
        z.sum(),
        jnp.angle(z),
        z.T @ w,
    )


@program(
    np.array([-300.7, -1.5, -0.0, 0.5, 1.5, 3.9, 130.2, 70000.0, 3e9, np.nan, np.inf, -np.inf], np.float32), exact=True
)
def conversions(x: Any) -> Any:
    types = (jnp.bool_, jnp.int8, jnp.uint8, jnp.int16, jnp.int32, jnp.uint32, jnp.float16, jnp.bfloat16, jnp.complex64)
    first = [lax.convert_element_type(x, t) for t in types]
    again = [
        lax.convert_element_type(v, t) for v in first[1:6] for t in (jnp.float32, jnp.bfloat16, jnp.int8, jnp.uint32)
    ]
    return first, again


@program(X, exact=True)
def narrow_floats(x: Any) -> Any:
    return [x.astype(t) for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz)]


@program(integers(8, high=100), X[0, :8], exact=True)
def bitcasts(i: Any, x: Any) -> Any:
    cast = lax.bitcast_convert_type
    return cast(i, jnp.float32), cast(x, jnp.int32), cast(x, jnp.uint8), cast(x.astype(jnp.bfloat16), jnp.int16)


@program(X.astype(np.float16), normal(53, 8, dtype=np.float16))
def half_precision(x: Any, w: Any) -> Any:
    return jax.nn.softmax(x), x @ w, x.sum(0), jnp.exp(x) / 3
