"""JAX functions that together use every HLO operation a replay knows, with arguments for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Program:
    """``portable``: XLA:GPU's HLO of it also runs on a CPU. ``exact``: no result may differ in a single bit."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    portable: bool = True
    exact: bool = False
    x64: bool = False


PROGRAMS: dict[str, Program] = {}


def program(*args: Any, **options: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fun: Callable[..., Any]) -> Callable[..., Any]:
        assert fun.__name__ not in PROGRAMS
        PROGRAMS[fun.__name__] = Program(fun, args, **options)
        return fun

    return register


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, high: int = 10, low: int = 0, dtype: Any = np.int32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


X = normal(37, 53)
KEY = np.array([1, 2], np.uint32)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    m = x.mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def cross_entropy(x: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()


# -- models and losses


@program(X)
def softmaxes(x: Any) -> Any:
    return jax.nn.softmax(x), jax.nn.log_softmax(x, 0), jax.nn.logsumexp(x)


@program(X, normal(53), normal(53), normal(37, 53, seed=3))
def layer_norm_gradient(x: Any, g: Any, b: Any, dy: Any) -> Any:
    y, vjp = jax.vjp(layer_norm, x, g, b)
    return y, vjp(dy)


@program(X.astype(ml_dtypes.bfloat16), normal(53, dtype=ml_dtypes.bfloat16), normal(53, dtype=ml_dtypes.bfloat16))
def layer_norm_bf16(x: Any, g: Any, b: Any) -> Any:
    return jax.value_and_grad(lambda x: layer_norm(x, g, b).sum(dtype=jnp.float32))(x)


@program(X, integers(37, high=53))
def cross_entropy_gradient(x: Any, y: Any) -> Any:
    return jax.value_and_grad(cross_entropy)(x, y)


@program(X, integers(37, low=-60, high=60))
def cross_entropy_gradient_with_labels_out_of_range(x: Any, y: Any) -> Any:
    return jax.grad(cross_entropy)(x, y)


@program(normal(4, 9, 9, 6), normal(6), normal(6))
def batch_norm_gradient(x: Any, g: Any, b: Any) -> Any:
    def f(x: Any, g: Any, b: Any) -> Any:
        m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return ((((x - m) * lax.rsqrt(v + 1e-5)) * g + b) ** 3).sum()

    return jax.grad(f, (0, 1, 2))(x, g, b)


@program(X, normal(53, 64), normal(64, 53))
def mlp_gradient(x: Any, w: Any, v: Any) -> Any:
    return jax.value_and_grad(lambda w, v: (jax.nn.gelu(x @ w) @ v).mean(), (0, 1))(w, v)


@program(normal(2, 12, 3, 8), normal(2, 12, 3, 8, seed=1), normal(2, 12, 3, 8, seed=2))
def attention_gradient(q: Any, k: Any, v: Any) -> Any:
    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 3
        s = jnp.where(jnp.tril(jnp.ones((12, 12), bool)), s, -1e9)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)

    y, vjp = jax.vjp(f, q, k, v)
    return vjp(y)


@program(tuple(normal(7, n, seed=n) for n in (3, 5, 8)), tuple(normal(7, n, seed=n + 1) for n in (3, 5, 8)))
def adam(params: Any, grads: Any) -> Any:
    def update(p: Any, g: Any) -> Any:
        m, v = 0.1 * g, 0.001 * g * g
        return p - 1e-3 * (m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-8) + 0.01 * p), m, v

    norm = jnp.sqrt(sum((g**2).sum() for g in grads))
    return jax.tree.map(lambda p, g: update(p, g / jnp.maximum(norm, 1)), params, grads)


# -- random numbers


@program(KEY, X)
def dropout(key: Any, x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape), x / 0.9, 0)


@program(KEY)
def random_numbers(key: Any) -> Any:
    a, b, c, d, e = jax.random.split(jax.random.wrap_key_data(key), 5)
    return (
        jax.random.normal(a, (33,)),
        jax.random.uniform(b, (5, 7), jnp.float16),
        jax.random.randint(c, (9,), -5, 99),
        jax.random.permutation(d, 17),
        jax.random.categorical(e, jnp.zeros((3, 4))),
    )


@program(KEY, exact=True)
def random_bits(key: Any) -> Any:
    key = jax.random.wrap_key_data(key)
    return [jax.random.bits(jax.random.fold_in(key, 7), (11,), d) for d in (np.uint8, np.uint16, np.uint32)]


@program(np.arange(4, dtype=np.uint32), exact=True)
def random_bit_generators(key: Any) -> Any:
    return (
        lax.rng_bit_generator(key, (6, 3), algorithm=lax.RandomAlgorithm.RNG_PHILOX),
        lax.rng_bit_generator(key, (6, 3), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        lax.rng_bit_generator(key, (5,), np.uint8, algorithm=lax.RandomAlgorithm.RNG_PHILOX),
    )


@program(KEY)
def random_gamma(key: Any) -> Any:
    return jax.random.gamma(jax.random.wrap_key_data(key), jnp.array([0.3, 1.5, 7.0]))


# -- elementwise


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


# -- shapes


@program(X, np.float32(2), exact=True)
def movement(x: Any, v: Any) -> Any:
    return (
        lax.pad(x, v, ((1, 2, 0), (-3, 4, 2))),
        x[::-1, 3:20:3],
        jnp.roll(x, 5, 1),
        jnp.concatenate([x, x[:4] * 2]),
        x.T.reshape(53 * 37)[3:],
        jnp.tile(x, (2, 1)),
        jnp.repeat(x, 3, 1),
        jnp.broadcast_to(x[0][:, None, None], (53, 2, 3)),
        x.reshape(37, 53, 1).transpose(2, 1, 0),
        jnp.triu(x),
        jnp.diag(x[0]),
        jnp.eye(5)[:, ::2],
    )


@program(normal(4, 6, 10), exact=True)
def reshapes_of_transposes(x: Any) -> Any:
    y = x.transpose(2, 0, 1)
    return y.reshape(8, 5, 6), y.reshape(240), y.reshape(20, 12).T, x.reshape(24, 10).T.reshape(5, 2, 24) + 1


@program(X, integers(2), exact=True)
def dynamic_slices(x: Any, i: Any) -> Any:
    y = lax.dynamic_slice(x, (i[0] - 20, i[1] + 49), (5, 7))
    return y, lax.dynamic_update_slice(x, y, (i[1], -i[0])), x[i[0]], x.at[i[1]].set(3.0)


@program(exact=True)
def made_of_nothing() -> Any:
    return jnp.arange(7), jnp.zeros((3, 0)), jnp.full((2, 2), 3.5), np.arange(100.0, dtype=np.float32).reshape(5, 20)


@program(X, np.float32(3), exact=True)
def passed_through(x: Any, s: Any) -> Any:
    return s, x, x, (), {"a": x[:0]}


# -- gather and scatter


@program(X, integers(11, low=-70, high=70), exact=True)
def gathers(x: Any, i: Any) -> Any:
    return (
        x[i],
        x.at[:, i].get(mode="fill", fill_value=7),
        x.at[i].get(mode="clip"),
        jnp.take(x, i, 1, mode="wrap"),
        x[i, i[::-1]],
    )


@program(X, integers(37, 4, low=-60, high=60), normal(37, 4))
def take_along_axis_gradient(x: Any, i: Any, dy: Any) -> Any:
    return jax.vjp(lambda x: jnp.take_along_axis(x, i, 1), x)[1](dy)


@program(X, integers(11, low=-45, high=45), normal(11, 53, seed=7))
def scatters(x: Any, i: Any, u: Any) -> Any:
    at = x.at[i]
    return (
        at.add(u),
        at.multiply(u),
        at.min(u),
        at.max(u),
        x.at[0, i].add(u[:, 0]),
        x.at[i, :3].add(u[:, 2:5]),
        at.apply(jnp.sin),
    )


@program(X, integers(11, high=37), exact=True)
def scatter_set(x: Any, i: Any) -> Any:
    return x.at[jnp.unique(i, size=11, fill_value=99)].set(1.5, unique_indices=True), x.at[jnp.arange(37), 3].set(2.0)


@program(normal(40), integers(40, high=6))
def segments(x: Any, i: Any) -> Any:
    return jax.ops.segment_sum(x, i, 6), jax.ops.segment_max(x, i, 6), jnp.bincount(i, length=6), jnp.histogram(x, 5)[0]


@program(X, integers(12, high=37), normal(12, 53))
def embedding_gradient(w: Any, i: Any, dy: Any) -> Any:
    return jax.vjp(lambda w: w[i], w)[1](dy)


# -- reductions, windows, sorting


@program(X)
def reductions(x: Any) -> Any:
    return (
        x.sum(),
        x.sum(0),
        x.prod(1),
        x.max(1),
        x.min(),
        jnp.argmax(x, 1),
        jnp.argmin(x),
        x.std(0),
        jnp.nanmean(x),
        x.var(),
    )


@program(X, integers(37, 53))
def reductions_of_several(x: Any, i: Any) -> Any:
    def combine(a: Any, b: Any) -> Any:
        return lax.max(a[0], b[0]), lax.max(a[1], b[1]), a[2] | b[2]

    start = np.float32(1), np.int32(0), np.bool_(False)
    return lax.reduce((lax.abs(x), i, x > 2), start, combine, (1,))


@program(X)
def cumulative(x: Any) -> Any:
    found = jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x), lax.cummin(x, 1, reverse=True), lax.cumlogsumexp(x, 1)
    return *found, lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x))


@program(normal(2, 12, 13, 3))
def pooling(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    y, vjp = jax.vjp(pool, x)
    average = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    dilated = lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 1, 2, 1), "VALID", (1, 2, 1, 1), (1, 1, 2, 1))
    return y, vjp(y), average, dilated


@program(normal(2, 12, 12, 3))
def windows_that_tile(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 4, 1), (1, 3, 4, 1), ((0, 0), (2, 1), (0, 0), (0, 0)))


@program(X, integers(37, 53, high=5), exact=True)
def sorts(x: Any, i: Any) -> Any:
    nans = jnp.where(x > 1.5, jnp.nan, x)
    return (
        jnp.sort(nans),
        jnp.argsort(i, axis=0),
        jnp.sort(x, descending=True),
        lax.sort((i, x), num_keys=2),
        jnp.lexsort((x[0], i[0])),
    )


@program(X, exact=True)
def top_k(x: Any) -> Any:
    return (
        lax.top_k(x, 5),
        jnp.median(x, 0),
        jnp.percentile(x, 30),
        jnp.searchsorted(x[0].sort(), x[1]),
        jnp.unique(x[0], size=60),
    )


# -- products, convolutions, transforms, factorisations


@program(normal(3, 8, 9), normal(3, 9, 10), normal(8, 3))
def products(a: Any, b: Any, c: Any) -> Any:
    exact = jnp.einsum("bij,bjk->bik", a, b, precision="highest")
    dims = (((2,), (1,)), ((0,), (0,)))
    return (
        a @ b,
        exact,
        jnp.einsum("bij,ib->j", a, c),
        jnp.tensordot(c, a, 1),
        jnp.outer(a[0, 0], c[0]),
        lax.dot_general(a, b, dims),
    )


@program(
    integers(8, 9, low=-128, high=128, dtype=np.int8), integers(9, 5, low=-128, high=128, dtype=np.int8), exact=True
)
def integer_products(a: Any, b: Any) -> Any:
    wide = lax.dot(a, b, preferred_element_type=jnp.int32)
    return wide, a.astype(jnp.int32) @ b.astype(jnp.int32), lax.dot(a, b)


@program(normal(8, 16, dtype=ml_dtypes.bfloat16), normal(16, 5, dtype=ml_dtypes.bfloat16))
def bf16_products(a: Any, b: Any) -> Any:
    return a @ b, lax.dot(a, b, preferred_element_type=jnp.float32), jax.nn.gelu(a @ b)


@program(normal(2, 9, 11, 4), normal(3, 3, 4, 6))
def convolutions(x: Any, w: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")

    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=numbers)

    y, vjp = jax.vjp(conv, x, w)
    dilated = lax.conv_general_dilated(x, w, (1, 1), ((2, -1), (0, 3)), (2, 1), (1, 2), dimension_numbers=numbers)
    return y, vjp(y), dilated, lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=numbers)


@program(normal(2, 4, 9, 8), normal(6, 2, 3, 3))
def grouped_convolutions(x: Any, w: Any) -> Any:
    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=2)

    y, vjp = jax.vjp(conv, x, w)
    return y, vjp(y), lax.conv_general_dilated(x, w[:, :1, :, :].repeat(4, 1), (1, 1), "SAME", batch_group_count=2)


@program(normal(6, 12), normal(4, 6, 8))
def transforms(x: Any, y: Any) -> Any:
    f = jnp.fft
    return f.fft(x), f.ifft(x), f.rfft(x), f.irfft(x), f.fft2(x), f.rfftn(y), f.fftshift(f.fftn(y))


_SQUARE = normal(3, 6, 6) + 6 * np.eye(6, dtype=np.float32)


@program(_SQUARE, portable=False)
def factorisations(a: Any) -> Any:
    s = a @ a.transpose(0, 2, 1)
    linalg = jnp.linalg
    return (
        linalg.cholesky(s),
        linalg.qr(a),
        linalg.eigh(s),
        linalg.svd(a),
        linalg.det(a),
        linalg.inv(a),
        linalg.eigvals(a),
    )


@program(_SQUARE, portable=False)
def solves(a: Any) -> Any:
    b = a[..., :2]
    lower = jnp.tril(a)
    solve = jax.scipy.linalg.solve_triangular
    return (
        jnp.linalg.solve(a, b),
        solve(lower[0], b[0], lower=True),
        solve(lower[0], b[0], lower=True, trans=1),
        jnp.linalg.pinv(a),
    )


@program(_SQUARE, portable=False)
def gradients_of_factorisations(a: Any) -> Any:
    return jax.grad(lambda a: jnp.linalg.cholesky(a @ a.transpose(0, 2, 1)).sum() + jnp.linalg.slogdet(a)[1].sum())(a)


# -- control flow


@program(normal(5, 8), normal(20, 5, 8), normal(8, 8))
def scan_gradient(h: Any, xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h.sum(-1)

    return jax.value_and_grad(lambda h: lax.scan(step, h, xs)[1].sum())(h)


@program(normal(3, 4), normal(7, 3, 4), normal(8, 16))
def lstm_gradient(c: Any, xs: Any, w: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([h, x], 1) @ w, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.grad(lambda w: lax.scan(step, (c, c), xs)[1].sum())(w)


@program(normal(6), np.int32(9))
def loops(x: Any, n: Any) -> Any:
    halved = lax.while_loop(lambda v: v[0].max() > 0.1, lambda v: (v[0] / 2, v[1] + 1), (x, 0))
    counted = lax.fori_loop(0, n, lambda i, v: v.at[i % 6].add(i), x)
    return halved, counted, lax.fori_loop(0, 5, lambda i, v: v * i + jnp.sin(v), x), lax.map(jnp.exp, x)


@program(normal(6), np.int32(1), exact=True)
def branches(x: Any, i: Any) -> Any:
    functions = [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y]
    chosen = [lax.switch(k, functions, x, x * 2) for k in (i, i + 7, i - 9)]
    return chosen, lax.cond(i > 0, lambda x: (x, x[0]), lambda x: (-x, x[1]), x)


@program(normal(4, 6))
def nested_control(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        grown = lax.while_loop(lambda v: jnp.abs(v).sum() < 20, lambda v: v * 1.5 + 0.1, row)
        carry = lax.cond(
            row[0] > 0, lambda c: c + grown, lambda c: lax.fori_loop(0, 3, lambda i, c: c - grown * i, c), carry
        )
        return carry, grown

    return lax.scan(body, x[0], x)


@program(normal(5, 6), integers(5, high=3))
def batched_control(x: Any, i: Any) -> Any:
    def f(row: Any, k: Any) -> Any:
        y = lax.switch(k, [jnp.sin, jnp.cos, jnp.exp], row)
        return lax.while_loop(lambda v: v.sum() < 30, lambda v: v + 1.25, y)

    return jax.vmap(f)(x, i)


@program(normal(4, 16), KEY)
def simulation(state: Any, key: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        s, key = carry
        key, sub = jax.random.split(key)
        force = jax.random.bernoulli(sub, 0.5, s.shape[1:]) * 2.0 - 1
        s = jnp.stack([s[0] + 0.02 * s[1], s[1] + 0.02 * force, s[2] + 0.02 * s[3], s[3] + 0.02 * jnp.sin(s[2])])
        s = jnp.where(jnp.abs(s[2]) > 0.5, 0.0, s)
        return (s, key), s[0]

    (s, _), xs = lax.scan(step, (state, jax.random.wrap_key_data(key)), None, 20)
    return s, xs


@program(X, partial(jnp.float32)(2.5))
def many_constants(x: Any, s: Any) -> Any:
    table = jnp.asarray(np.linspace(0, 1, 53 * 3).astype(np.float32).reshape(3, 53))
    return x * table[1] + s, jnp.dot(x, table.T), table.astype(jnp.bfloat16)
