"""Operators of jax.lax and jax.numpy on two matrices x and y, with the kinds of numbers that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
from jax import lax

DTYPES: dict[str, tuple[str, ...]] = {
    "f": ("float32", "float16", "bfloat16", "float64"),
    "w": ("float32", "float64"),
    "i": ("int32", "int8", "int64", "int16"),
    "u": ("uint32", "uint8", "uint64", "uint16"),
    "b": ("bool",),
    "c": ("complex64",),
}
"""The types of a kind; the first of each is what fast tests try."""

ANY, NUMBERS, REAL, WHOLE, BITS = "fiubc", "fiuc", "fiu", "iu", "iub"
ROWS, COLUMNS = 6, 33


@dataclass(frozen=True)
class Operator:
    """``domain`` are bounds of the floating-point values that are tried."""

    function: Callable[..., Any]
    kinds: str
    domain: tuple[float, float] = (-3.0, 3.0)


UNIT, POSITIVE, ABOVE_ONE = (-0.95, 0.95), (0.1, 6.0), (1.1, 6.0)


def _of_x(names: str, module: Any, kinds: str, domain: tuple[float, float] = (-3.0, 3.0)) -> dict[str, Operator]:
    return {
        f"{module.__name__.removeprefix('jax.')}.{name}": Operator(_first(getattr(module, name)), kinds, domain)
        for name in names.split()
        if hasattr(module, name)  # Versions of JAX differ.
    }


def _of_both(names: str, module: Any, kinds: str, domain: tuple[float, float] = (-3.0, 3.0)) -> dict[str, Operator]:
    return {
        f"{module.__name__.removeprefix('jax.')}.{name}": Operator(getattr(module, name), kinds, domain)
        for name in names.split()
        if hasattr(module, name)
    }


def _first(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x)


def _along(function: Callable[..., Any], axis: int) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x, axis=axis)


ELEMENTWISE = {
    **_of_x("cbrt ceil digamma erf erfc exp2 floor is_finite lgamma logistic round bessel_i0e bessel_i1e", lax, "f"),
    **_of_x("cos exp expm1 sin sinh cosh tan tanh", lax, "fc"),
    **_of_x("abs neg sign square", lax, "fic"),
    **_of_x("acos asin atan atanh", lax, "fc", UNIT),
    **_of_x("acosh", lax, "f", ABOVE_ONE),
    **_of_x("erf_inv", lax, "f", UNIT),
    **_of_x("log log1p rsqrt sqrt asinh reciprocal", lax, "fc", POSITIVE),
    **_of_x("bitwise_not", lax, BITS),
    **_of_x("clz population_count", lax, WHOLE),
    **_of_x("imag real conj", lax, "c"),
    **_of_both("add mul sub", lax, NUMBERS),
    **_of_both("div", lax, NUMBERS, POSITIVE),
    **_of_both("eq ne", lax, ANY),
    **_of_both("ge gt le lt max min", lax, "fiub"),
    **_of_both("atan2 nextafter", lax, "f"),
    **_of_both("igamma igammac random_gamma_grad", lax, "f", POSITIVE),
    **_of_both("zeta polygamma", lax, "f", ABOVE_ONE),
    **_of_both("rem", lax, REAL, POSITIVE),
    **_of_both("pow", lax, "fc", POSITIVE),
    **_of_both("bitwise_and bitwise_or bitwise_xor", lax, BITS),
    **_of_both("shift_left shift_right_arithmetic shift_right_logical", lax, WHOLE),
    **_of_x("abs negative positive sign square reciprocal angle conjugate isnan isinf isfinite", jnp, "fc", POSITIVE),
    **_of_x("arccosh", jnp, "f", ABOVE_ONE),
    **_of_x("arcsinh sinc deg2rad rad2deg fabs i0 rint trunc signbit modf frexp spacing nan_to_num", jnp, "f"),
    **_of_x("log10 log2 exp2", jnp, "f", POSITIVE),
    **_of_x("invert bitwise_count", jnp, WHOLE),
    **_of_x("logical_not", jnp, "fiub"),
    **_of_both("arctan2 copysign float_power fmod heaviside hypot logaddexp logaddexp2", jnp, "f", POSITIVE),
    **_of_both("add multiply subtract maximum minimum fmax fmin", jnp, REAL),
    **_of_both("divide floor_divide mod divmod remainder power", jnp, REAL, POSITIVE),
    **_of_both("gcd lcm left_shift right_shift", jnp, WHOLE),
    **_of_both("logical_and logical_or logical_xor equal not_equal greater less_equal", jnp, "fiub"),
    **_of_both("isclose", jnp, "f"),
    **_of_x("expit i0e i1 i1e entr", special, "f"),
    **_of_x("logit", special, "f", (0.05, 0.95)),
    **_of_x("ndtri", special, "w", (0.05, 0.95)),
    **_of_x("log_ndtr ndtr", special, "w"),
    **_of_both("betaln xlogy xlog1py rel_entr kl_div", special, "f", POSITIVE),
    **_of_x("celu elu gelu hard_sigmoid hard_swish hard_tanh leaky_relu log_sigmoid mish relu relu6", jax.nn, "f"),
    **_of_x("selu sigmoid silu soft_sign softplus sparse_plus squareplus swish tanh", jax.nn, "f"),
    "lax.integer_pow": Operator(lambda x, y: (lax.integer_pow(x, 3), lax.integer_pow(x, 0)), NUMBERS),
    "lax.integer_pow of -2": Operator(lambda x, y: lax.integer_pow(x, -2), "fc", POSITIVE),
    "lax.mulhi": Operator(lambda x, y: lax.mulhi(x, y), "" if jax.default_backend() == "cpu" else WHOLE),
    "lax.clamp": Operator(lambda x, y: lax.clamp(jnp.minimum(x, y), y, jnp.maximum(x, y)), REAL),
    "lax.select": Operator(lambda x, y: lax.select(x > y, x, y), "fiub"),
    "lax.reduce_precision": Operator(lambda x, y: lax.reduce_precision(x, 5, 4), "f"),
    "lax.betainc": Operator(lambda x, y: lax.betainc(x, y, x / (x + y)), "f", POSITIVE),
    "lax.bitcast_convert_type": Operator(
        lambda x, y: lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}")), "fiu"
    ),
    **{
        f"lax.convert_element_type to {t}": Operator(lambda x, y, t=t: lax.convert_element_type(x, t), "fiub", POSITIVE)
        for t in ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "uint32", "bool")
    },
    "jnp.clip": Operator(lambda x, y: jnp.clip(x, 1, 3), REAL),
    "jnp.where": Operator(lambda x, y: jnp.where(x == y, x, y), ANY),
    "jnp.ldexp": Operator(lambda x, y: jnp.ldexp(x, jnp.int32(3)), "f"),
    "jnp.round to 2": Operator(lambda x, y: jnp.round(x, 2), "f"),
    "jnp.select": Operator(lambda x, y: jnp.select([x > y, x < y], [x, y], 1), REAL),
    "jnp.polyval": Operator(lambda x, y: jnp.polyval(jnp.array([1, 2, 3]).astype(x.dtype), x), NUMBERS),
    "jnp.interp": Operator(lambda x, y: jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2), "f"),
}

REDUCTIONS = {
    **_of_x("all any argmax argmin max min count_nonzero ptp", jnp, "fiu", (-3.0, 3.0)),
    **_of_x("mean sum prod std var", jnp, "fiu", UNIT),
    **_of_x("nanmax nanmin nanmean nansum nanprod nanstd nanargmax nanargmin median", jnp, "f", UNIT),
    **{
        f"jnp.{name} along {axis}": Operator(_along(getattr(jnp, name), axis), kinds, UNIT)
        for name, kinds in (
            *(("sum", "fiuc"), ("max", "fiub"), ("min", "fiub"), ("prod", "fiu"), ("mean", "fiu"), ("var", "f")),
            *(("any", "fiub"), ("all", "fiub"), ("argmax", "fiub"), ("argmin", "fiu"), ("median", "f")),
            *(("cumsum", "fiu"), ("cumprod", "fiu"), ("sort", "fiub"), ("argsort", "fiu"), ("flip", "fiub")),
            *(("diff", "fiu"), ("nancumsum", "f"), ("std", "f"), ("count_nonzero", "fiub")),
        )
        for axis in (0, 1)
    },
    **{
        f"lax.{name}": Operator(_along(getattr(lax, name), 1), "f" if "log" in name else "fiu", UNIT)
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    },
    "lax.reduce_and, or, xor": Operator(
        lambda x, y: (lax.reduce_and(x, (0,)), lax.reduce_or(x, (1,)), lax.reduce_xor(x, (1,))), BITS
    ),
    "lax.reduce of two": Operator(lambda x, y: _two_maxima(x, y), REAL),
    "lax.top_k": Operator(lambda x, y: lax.top_k(x, 4), REAL),
    "lax.reduce_window": Operator(lambda x, y: _pooled(x), REAL),
    "jnp.average": Operator(lambda x, y: jnp.average(x, 1, abs(y) + 1), "f"),
    "jnp.quantile": Operator(lambda x, y: jnp.quantile(x.astype(jnp.float32), 0.3, axis=1), "fiu"),
    "jnp.linalg.norm": Operator(lambda x, y: jnp.linalg.norm(x, axis=1), "f"),
    "jnp.trapezoid": Operator(lambda x, y: jnp.trapezoid(x), "f"),
    "jnp.cov": Operator(lambda x, y: jnp.cov(x), "f"),
    "jnp.searchsorted": Operator(lambda x, y: jnp.searchsorted(jnp.sort(x[0]), y), "fi"),
    "jnp.digitize": Operator(lambda x, y: jnp.digitize(x, jnp.arange(-2, 3).astype(x.dtype)), "fi"),
    "jnp.bincount": Operator(lambda x, y: jnp.bincount(abs(x).ravel(), length=9), "i"),
    "jax.nn.softmax": Operator(lambda x, y: (jax.nn.softmax(x), jax.nn.log_softmax(x, 0)), "f"),
    "jax.nn.logsumexp": Operator(lambda x, y: jax.nn.logsumexp(x, 1), "f"),
    "jax.nn.glu": Operator(lambda x, y: jax.nn.glu(x, 0), "f"),
    "jax.nn.standardize": Operator(lambda x, y: jax.nn.standardize(x), "f"),
    "jax.nn.one_hot": Operator(lambda x, y: jax.nn.one_hot(x[0], 5), "i"),
}


def _two_maxima(x: Any, y: Any) -> Any:
    low = jnp.array(-100 if x.dtype.kind != "u" else 0, x.dtype)
    return lax.reduce((x, y), (low, low), lambda a, b: (lax.max(a[0], b[0]), lax.max(a[1], b[1])), (1,))


def _pooled(x: Any) -> Any:
    init = jnp.array(0, x.dtype)
    return lax.reduce_window(x, init, lax.add, (2, 3), (1, 2), ((1, 0), (0, 1)))


SHAPES = {
    **_of_x("ravel transpose atleast_3d diag diagonal fliplr flipud rot90 squeeze tril triu trace", jnp, "fiub"),
    "lax.broadcast": Operator(lambda x, y: lax.broadcast(x, (2, 3)), ANY),
    "lax.broadcast_in_dim": Operator(lambda x, y: lax.broadcast_in_dim(x, (COLUMNS, 2, ROWS), (2, 0)), ANY),
    "lax.concatenate": Operator(lambda x, y: (lax.concatenate([x, y], 0), lax.concatenate([y, x], 1)), ANY),
    "lax.pad": Operator(lambda x, y: lax.pad(x, x[0, 0], ((1, 2, 1), (-1, 3, 0))), ANY),
    "lax.rev": Operator(lambda x, y: lax.rev(x, (0, 1)), ANY),
    "lax.slice": Operator(lambda x, y: lax.slice(x, (1, 2), (5, 30), (2, 3)), ANY),
    "lax.dynamic_slice": Operator(lambda x, y: lax.dynamic_slice(x, _starts(y), (3, 20)), "fiub"),
    "lax.dynamic_update_slice": Operator(lambda x, y: lax.dynamic_update_slice(x, y[:2, :9], _starts(y)), "fiub"),
    "lax.expand_dims": Operator(lambda x, y: lax.expand_dims(x, (0, 2)), ANY),
    "lax.iota": Operator(lambda x, y: x + lax.broadcasted_iota(x.dtype, x.shape, 1), "fiu"),
    "lax.sort of two": Operator(lambda x, y: lax.sort((x, y), num_keys=2), "fiu"),
    "lax.gather": Operator(lambda x, y: x[jnp.array([3, 0, 5, 3])], ANY),
    "lax.scatter_add": Operator(lambda x, y: x.at[jnp.array([3, 0, 3])].add(y[:3]), "fiu"),
    "lax.scatter_max": Operator(lambda x, y: x.at[:, jnp.array([3, 0, 3])].max(y[:, :3]), "fiu"),
    "lax.scatter": Operator(lambda x, y: x.at[jnp.array([3, 0])].set(y[:2]), ANY),
    "lax.dot": Operator(lambda x, y: lax.dot(x, y.T), NUMBERS, UNIT),
    "lax.dot_general": Operator(lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))), "f", UNIT),
    "lax.conv": Operator(lambda x, y: lax.conv(x[None, None], y[None, None, :2, :3], (1, 2), "SAME"), "f", UNIT),
    "lax.fft": Operator(lambda x, y: jnp.fft.rfft(x.astype(jnp.float32)).real, "f"),
    "lax.map": Operator(lambda x, y: lax.map(lambda row: row * 2 + 1, x), "fiu"),
    "lax.cond": Operator(lambda x, y: lax.cond(x[0, 0] > y[0, 0], lambda a: a + 1, lambda a: a * 2, x), REAL),
    "lax.switch": Operator(lambda x, y: lax.switch(_starts(y)[0], [lambda a: a + 1, lambda a: a * 2], x), REAL),
    "lax.fori_loop": Operator(lambda x, y: lax.fori_loop(0, 3, lambda i, c: c + y, x), REAL),
    "lax.scan": Operator(lambda x, y: lax.scan(lambda c, r: (c + r, c * r), x[0], y), REAL, UNIT),
    "lax.associative_scan": Operator(lambda x, y: lax.associative_scan(jnp.add, x), "fiu"),
    "jnp.append": Operator(lambda x, y: jnp.append(x, y, 1), ANY),
    "jnp.roll": Operator(lambda x, y: (jnp.roll(x, 2, 0), jnp.roll(x, -3, 1), jnp.roll(x, 5)), ANY),
    "jnp.repeat": Operator(lambda x, y: jnp.repeat(x, 3, 1), ANY),
    "jnp.tile": Operator(lambda x, y: jnp.tile(x, (2, 2)), ANY),
    "jnp.stack": Operator(lambda x, y: (jnp.stack([x, y]), jnp.stack([x, y], -1)), ANY),
    "jnp.split": Operator(lambda x, y: jnp.split(x, 3, 1), ANY),
    "jnp.take": Operator(lambda x, y: jnp.take(x, jnp.array([1, 7, 32, 40, -1]), 1), "fiu"),
    "jnp.take_along_axis": Operator(lambda x, y: jnp.take_along_axis(x, jnp.argsort(y, 1), 1), "fiu"),
    "jnp.pad": Operator(lambda x, y: (jnp.pad(x, 2), jnp.pad(x, 2, "reflect"), jnp.pad(x, 1, "edge")), "fiub"),
    "jnp.kron": Operator(lambda x, y: jnp.kron(x[:2, :3], y[:3, :2]), NUMBERS),
    "jnp.cross": Operator(lambda x, y: jnp.cross(x[:, :3], y[:, :3]), "fi"),
    "jnp.outer": Operator(lambda x, y: jnp.outer(x[0], y[0]), NUMBERS),
    "jnp.einsum": Operator(lambda x, y: jnp.einsum("ij,ij->i", x, y), NUMBERS, UNIT),
    "jnp.convolve": Operator(lambda x, y: jnp.convolve(x[0], y[0, :4]), "f"),
    "jnp.vander": Operator(lambda x, y: jnp.vander(x[0], 4), "f", UNIT),
    "jnp.unwrap": Operator(lambda x, y: jnp.unwrap(x, axis=1), "f"),
    "jnp.gradient": Operator(lambda x, y: jnp.gradient(x), "f"),
    "jnp.packbits": Operator(lambda x, y: jnp.unpackbits(jnp.packbits(x, 1), 1), "b"),
    "jnp.meshgrid": Operator(lambda x, y: jnp.meshgrid(x[0], y[:, 0]), "fiub"),
    "jnp.moveaxis": Operator(lambda x, y: jnp.moveaxis(x.reshape(2, 3, 11, 3), (0, 1), (2, 3)), ANY),
}


def _starts(y: Any) -> tuple[Any, Any]:
    """Places that depend on a value, some beyond the end."""
    n = jnp.argmax(y[0]).astype(jnp.int32)
    return n % 7, n


OPERATORS = {**ELEMENTWISE, **REDUCTIONS, **SHAPES}
