"""Conversions, against XLA's own on the same values, and storage types against every bit pattern there is."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from tests.runtime.conftest import load

TYPES = {
    "pred": ("bool", np.dtype(bool)),
    **{f"s{n}": (f"int{n}_t", np.dtype(f"int{n}")) for n in (8, 16, 32, 64)},
    **{f"u{n}": (f"uint{n}_t", np.dtype(f"uint{n}")) for n in (8, 16, 32, 64)},
    "f16": ("st::f16", np.dtype(np.float16)),
    "bf16": ("st::bf16", np.dtype(ml_dtypes.bfloat16)),
    "f32": ("float", np.dtype(np.float32)),
    "f64": ("double", np.dtype(np.float64)),
}
EXPRESSIONS = {
    **{f"{a}_to_{b}": (f"st::convert<{TYPES[b][0]}>(a)", [TYPES[a][0]], TYPES[b][0]) for a in TYPES for b in TYPES},
    "load_f16": ("st::load(a)", ["st::f16"], "float"),
    "load_bf16": ("st::load(a)", ["st::bf16"], "float"),
    "store_f16": ("st::store<st::f16>(a)", ["float"], "st::f16"),
    "store_bf16": ("st::store<st::bf16>(a)", ["float"], "st::bf16"),
    "round_bf16": ("st::round_to<st::bf16>(a)", ["float"], "float"),
    "bits_f32": ("st::bitcast<uint32_t>(a)", ["float"], "uint32_t"),
    "from_bits_f64": ("st::bitcast<double>(a)", ["int64_t"], "double"),
    "reduce_5_10": ("st::reduce_precision<5, 10>(a)", ["float"], "float"),
    "reduce_8_7": ("st::reduce_precision<8, 7>(a)", ["float"], "float"),
    "reduce_8_23": ("st::reduce_precision<8, 23>(a)", ["double"], "double"),
}


OF_CASES = {name for name in EXPRESSIONS if "_to_" in name} - {"f64_to_f16"}


def named(a: str = "", b: str = "", **_: object) -> list[str]:
    return [f"{a}_to_{b}"]


def values(dtype: np.dtype) -> np.ndarray:
    """The values where a conversion from ``dtype`` can go wrong: limits of all types, ties, and random ones."""
    rng = np.random.default_rng(0)
    if dtype.kind == "b":
        return np.array([False, True])
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        powers = [s * 2**k + d for k in range(64) for d in (-1, 0, 1) for s in (1, -1)]
        # Halfway between two floats, two bf16s, two f16s.
        powers += [
            s * (2**k + 2 ** (k - m) + d)
            for k in range(24, 63)
            for m in (8, 11, 24)
            for d in (-1, 0, 1)
            for s in (1, -1)
        ]
        edges = np.array([v for v in powers if info.min <= v <= info.max], dtype)
        return np.concatenate([edges, rng.integers(info.min, info.max, 2000, dtype, endpoint=True)])
    edges = [s * (2.0**k + d) for k in range(70) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)]
    edges += [0.0, -0.0, 0.25, -0.75, 65504, 65519, 65520, 65536, 3.4e38, np.inf, -np.inf, np.nan]
    edges += [(1 + 2.0**-8), (1 + 3 * 2.0**-8), (1 + 2.0**-11), (1 + 3 * 2.0**-11), (1 + 2.0**-11 + 2.0**-40)]
    edges += [2.0**-24, 2.0**-25, 1.5 * 2.0**-24, 1.5 * 2.0**-25, 2.0**-14 - 2.0**-26, (1 + 2.0**-11 - 2.0**-40)]
    with np.errstate(over="ignore"):
        random = rng.standard_normal(2000) * 2.0 ** rng.integers(-20, 70, 2000)
        return np.concatenate([edges, random]).astype(dtype)


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal bit for bit, but for the payload of NaN."""
    if np.issubdtype(got.dtype, np.integer) or got.dtype == bool:
        return got == want
    bits = np.dtype(f"u{got.dtype.itemsize}")
    return (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))


PAIRS = [pair for pair in itertools.product(TYPES, TYPES) if pair != ("f64", "f16")]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_as_xla(compiled, a, b):
    x = values(TYPES[a][1])
    with jax.enable_x64(True):
        want = np.asarray(jax.jit(lambda x: jax.lax.convert_element_type(x, TYPES[b][1]))(jnp.asarray(x)))
    got = compiled[f"{a}_to_{b}"](x)
    wrong = ~same(got, want)
    assert not wrong.any(), [(x[i], got[i], want[i]) for i in np.flatnonzero(wrong)[:5]]


def test_double_to_half_rounds_once(compiled):
    """XLA:GPU rounds once, as NumPy does; XLA:CPU goes through float, and is wrong just beside a tie."""
    x = values(np.dtype(np.float64))
    with np.errstate(over="ignore"):
        assert same(compiled["f64_to_f16"](x), x.astype(np.float16)).all()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_half(compiled, name):
    x = np.arange(1 << 16, dtype=np.uint16).view(TYPES[name][1])
    wide = compiled[f"load_{name}"](x)
    assert same(wide, x.astype(np.float32)).all()
    assert same(compiled[f"store_{name}"](wide), x).all()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_of_every_kind_of_float(compiled, name):
    # Every exponent and sign, and the mantissas around each tie of either type.
    tails = np.array(
        [
            m + d
            for m in (0, 0x1000, 0x2000, 0x3000, 0x7000, 0x8000, 0x10000, 0x18000, 0x7FF000, 0x7F8000)
            for d in (-1, 0, 1)
            if m + d >= 0
        ]
    )
    x = (np.arange(512, dtype=np.uint32)[:, None] << 23 | tails.astype(np.uint32)).reshape(-1).view(np.float32)
    with np.errstate(over="ignore"):
        want = x.astype(TYPES[name][1])
    got = compiled[f"store_{name}"](x)
    wrong = ~same(got, want)
    assert not wrong.any(), [(x[i], got[i], want[i]) for i in np.flatnonzero(wrong)[:5]]


def test_round_to(compiled):
    x = values(np.dtype(np.float32))
    assert same(compiled["round_bf16"](x), x.astype(ml_dtypes.bfloat16).astype(np.float32)).all()


def test_bitcast(compiled):
    x = values(np.dtype(np.float32))
    assert (compiled["bits_f32"](x) == x.view(np.uint32)).all()
    i = values(np.dtype(np.int64))
    assert (compiled["from_bits_f64"](i).view(np.int64) == i).all()


@pytest.mark.parametrize(
    ("exponent", "mantissa", "dtype"), [(5, 10, np.float32), (8, 7, np.float32), (8, 23, np.float64)]
)
def test_reduce_precision(compiled, exponent, mantissa, dtype):
    x = values(np.dtype(dtype))
    with jax.enable_x64(True):
        want = np.asarray(jax.lax.reduce_precision(jnp.asarray(x), exponent, mantissa))
    got = compiled[f"reduce_{exponent}_{mantissa}"](x)
    wrong = ~same(got, want)
    assert not wrong.any(), [(x[i], got[i], want[i]) for i in np.flatnonzero(wrong)[:5]]


def test_halves_where_subnormals_are_flushed(tmp_path):
    """XLA's threads treat float32 subnormals as zero; float16 subnormals are no such."""
    if not toolchain.processor().startswith("x86_64"):
        pytest.skip("sets a control register of x86")
    functions = load(
        {
            "control": ("(__builtin_ia32_ldmxcsr(a), a)", ["uint32_t"], "uint32_t"),
            "tiny": ("a * 0.5f", ["float"], "float"),
            **{name: EXPRESSIONS[name] for name in ("load_f16", "store_f16")},
        },
        tmp_path,
    )
    x = np.arange(1 << 15, dtype=np.uint16).view(np.float16)
    want = x.astype(np.float32)
    flushing, default = np.array([0x9FC0], np.uint32), np.array([0x1F80], np.uint32)
    functions["control"](flushing)
    try:
        flushed = functions["tiny"](np.array([2.0**-126], np.float32)).view(np.uint32)
        wide = functions["load_f16"](x).view(np.uint32)
        back = functions["store_f16"](wide.view(np.float32)).view(np.uint16)
    finally:
        functions["control"](default)
    assert flushed == 0, "the test does not test what it should"
    assert same(wide.view(np.float32), want).all()
    assert same(back.view(np.float16), x).all()
