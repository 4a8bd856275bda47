"""Floating-point operations, judged against float64 in units in the last place; special values must be exact."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from jax import lax

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS, flags_of
from jax_stitch.emit.source import KernelSource
from tests.runtime.conftest import load, text_of

erf = np.vectorize(math.erf, otypes=[float])


def round_half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.trunc(np.abs(x) + np.where(np.abs(x) < 2**52, 0.5, 0)), x)


UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 1.1),
    "exp2": (np.exp2, 1.1),
    "expm1": (np.expm1, 1.5),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 1.0),
    "log2": (np.log2, 1.6),
    "tanh": (np.tanh, 1.5),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "sqrt": (np.sqrt, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6),
    "cbrt": (np.cbrt, 0.51),
    "sin": (np.sin, 1.6),
    "cos": (np.cos, 1.6),
    "tan": (np.tan, 3.5),
    "sinh": (np.sinh, 3.5),
    "cosh": (np.cosh, 2.5),
    "asin": (np.arcsin, 3.5),
    "acos": (np.arccos, 3.5),
    "asinh": (np.arcsinh, 3.5),
    "acosh": (np.arccosh, 3.5),
    "atanh": (np.arctanh, 3.5),
    "abs": (np.abs, 0),
    "negate": (np.negative, 0),
    "sign": (lambda x: np.where(x == 0, x, np.sign(x)), 0),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
    "round_half_even": (np.rint, 0),
    "round_half_away": (round_half_away, 0),
}
"""float64 reference and largest error in ulp."""
POWERS = (2.3, -3.0, 0.5, -0.5, 7.0, 1e-3, 100.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**24 + 2, 2.0**23 + 1)
EXPRESSIONS = {
    **{f"{name}_f32": (f"st::{name}(a)", ["float"], "float") for name in (*UNARY, "erf")},
    **{f"{name}_f64": (f"st::{name}(a)", ["double"], "double") for name in (*UNARY, "erf")},
    **{
        f"{name}_{t[0]}": (f"st::{name}(a, b)", [t, t], t)
        for name in ("maximum", "minimum", "power", "atan2", "remainder", "add", "subtract", "multiply", "divide")
        for t in ("float", "double")
    },
    "clamp_f": ("st::clamp(a, b, c)", ["float", "float", "float"], "float"),
    "is_finite_f32": ("st::is_finite(a)", ["float"], "bool"),
    "is_finite_f64": ("st::is_finite(a)", ["double"], "bool"),
    "total_f32": ("st::total_order(a)", ["float"], "int32_t"),
    "total_f64": ("st::total_order(a)", ["double"], "int64_t"),
    "exp_bf16": ("st::store<st::bf16>(st::exp(st::load(a)))", ["st::bf16"], "st::bf16"),
    "scale_f16": ("st::store<st::f16>(2.0f * st::load(a))", ["st::f16"], "st::f16"),
    "round_s32": ("st::convert<int32_t>(a)", ["float"], "int32_t"),
    "masked": ("b * st::convert<float>(a)", ["bool", "float"], "float"),
    "selected": ("a ? b : st::exp(c)", ["bool", "float", "float"], "float"),
    "compared": ("st::bitwise_and(a, b < 1.0f)", ["bool", "float"], "bool"),
    "random_bits": (
        "st::bitwise_xor(st::bitwise_or(st::shift_left(a, 13), st::shift_right_logical(a, 19)), st::add(a, b))",
        ["uint32_t", "uint32_t"],
        "uint32_t",
    ),
    "exp_s32": ("st::exp(st::convert<float>(st::add(a, 1)))", ["int32_t"], "float"),
}
OF_CASES = {f"{name}_{t}" for name in UNARY for t in ("f32", "f64")}
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e-45, -1e-45, 1e-38, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32
)


def named(name: str = "", **_: object) -> list[str]:
    return [f"{name}_f32", f"{name}_f64"]


@pytest.fixture(scope="module")
def floats() -> np.ndarray:
    """A million bit patterns spread over all of float32, and the special values."""
    bits = (np.arange(1_000_000, dtype=np.uint64) * 4294967291 // 1_000_003 % 2**32).astype(np.uint32)
    return np.concatenate([bits.view(np.float32), SPECIAL])


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of float32; infinite where a special value, or a zero's sign, is wrong."""
    with np.errstate(all="ignore"):
        nearest = want.astype(np.float32)
        spacing = np.spacing(np.maximum(np.abs(nearest), np.float32(2.0**-126))).astype(np.float64)
        error = np.abs(got.astype(np.float64) - want) / spacing
        exact = ~np.isfinite(nearest) | ~np.isfinite(got) | (nearest == 0)
        right = (np.isnan(nearest) & np.isnan(got)) | ((nearest == got) & (np.signbit(nearest) == np.signbit(got)))
    return np.where(exact, np.where(right, 0, np.inf), error)


def check(got: np.ndarray, want: np.ndarray, bound: float, *operands: np.ndarray) -> None:
    error = ulp_error(got, want)
    worst = int(np.argmax(error))
    at = [float(x[worst]) for x in operands]
    assert error[worst] <= bound, f"{error[worst]} ulp at {at}: {got[worst]!r}, not {want[worst]!r}"


@pytest.mark.parametrize("name", UNARY)
def test_float(compiled, floats, name):
    reference, bound = UNARY[name]
    with np.errstate(all="ignore"):
        want = np.asarray(reference(floats.astype(np.float64)))
    check(compiled[f"{name}_f32"](floats), want, bound, floats)


def test_erf(compiled, floats):
    x = floats[::5]
    check(compiled["erf_f32"](x), erf(x.astype(np.float64)), 1.2, x)


DOUBLES = {"exp": 1.1, "expm1": 1.5, "log": 1.0, "log1p": 1.0, "tanh": 2.6, "logistic": 3.0}
"""Functions of double that become vectors, and their largest errors in ulp."""


def doubles() -> np.ndarray:
    """Numbers of every magnitude, many near those where a function overflows, vanishes or changes its form."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 200_000, dtype=np.uint64).view(np.float64)
    near = [rng.uniform(low, high, 100_000) for low, high in ((-1, 1), (-40, 40), (-760, 760), (0, 3), (-746, -700))]
    edges = np.array([709.782712893384, 709.79, -745.1332191019411, -745.2, 22.0, 0.34657, -0.29289, 0.41421, -1.0])
    tiny = 10.0 ** rng.uniform(-324, -5, 50_000) * rng.choice([-1, 1], 50_000)
    return np.concatenate([bits, *near, edges, np.nextafter(edges, 0), tiny, SPECIAL.astype(np.float64)])


@pytest.mark.parametrize("name", DOUBLES)
def test_double_in_units(compiled, name):
    """A polynomial that is a term short, or a step that rounds once too often, shows as several units."""
    x = doubles()
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        exact = UNARY[name][0](wide)
        want, got = exact.astype(np.float64), compiled[f"{name}_f64"](x)
        spacing = np.spacing(np.maximum(np.abs(want), 2.0**-1022)).astype(np.longdouble)
        error = np.abs(got.astype(np.longdouble) - exact) / spacing
    special = ~np.isfinite(want) | ~np.isfinite(got) | (want == 0)
    same = (np.isnan(want) & np.isnan(got)) | ((want == got) & (np.signbit(want) == np.signbit(got)))
    error = np.where(special, np.where(same, 0, np.inf), error)
    worst = int(np.argmax(error))
    assert error[worst] <= DOUBLES[name], f"{error[worst]} ulp at {x[worst].hex()}: {got[worst]!r}, not {want[worst]!r}"


@pytest.mark.parametrize("name", DOUBLES)
def test_doubles_become_vectors(name, tmp_path):
    """One statement that GCC has no vectors for, and a softmax of doubles takes five times as long."""
    if not toolchain.processor().startswith("x86_64"):
        pytest.skip("the flags are for x86-64")
    source = tmp_path / "loop.cc"
    loop = f"for (int i = 0; i < 4096; ++i) y[i] = st::{name}(x[i]);"
    source.write_text(f'#include "stitch.h"\nvoid f(double* __restrict y, const double* x) {{ {loop} }}\n')
    flags = [*(flag for flag in FLAGS if flag != "-march=native"), "-mavx2", "-mfma", f"-I{RUNTIME}"]
    command = [*toolchain.compiler(), *flags, "-S", "-o", "-", str(source)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"\bvmulpd\b.*ymm|\bvfn?m\w+pd\b.*ymm", text) and not re.search(r"\bcall\b", text)


ONE_BY_ONE = ("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "asinh", "acosh", "atanh", "erf", "cbrt")
"""Functions of double that go to the C library."""


@pytest.mark.parametrize("call", [*(f"{name}(x[i])" for name in ONE_BY_ONE), "power(x[i], x[i])", "atan2(x[i], 2.0)"])
def test_what_is_around_a_call_stays_in_vectors(call, tmp_path):
    """One function of the C library in a loop, and GCC computes all the rest of it element by element, with branches
    for selects: Black and Scholes' formula took two and a half times as long.
    """
    if not toolchain.processor().startswith("x86_64"):
        pytest.skip("the flags are for x86-64")
    if "Free Software Foundation" not in toolchain.identity(toolchain.compiler()):
        pytest.skip("other compilers keep their vectors by themselves")
    loop = (
        f'_Pragma("omp simd") for (int i = 0; i < 4096; ++i) '
        f"{{ const double v = st::{call}; y[i] = st::exp(x[i]) * (x[i] < 0.5 ? v : x[i]); }}"
    )
    text = f'#include "stitch.h"\nvoid f(double* __restrict y, const double* x) {{ {loop} }}\n'
    source = KernelSource("f", text, (), (), 1, 1, 0)
    flags = [*(flag for flag in flags_of(source) if flag != "-march=native"), "-mavx2", "-mfma", f"-I{RUNTIME}"]
    command = [*toolchain.compiler(), *flags, "-S", "-o", "-", "-x", "c++", "-"]
    made = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    body = made[made.index("_Z1fPdPKd:") :]
    assert re.search(r"\bcall\s+_ZGVdN4v", body) and re.search(r"\bvfn?m\w+pd\b.*ymm", body)


def test_without_fma(floats, tmp_path):
    """A processor with no fused multiply-add, and narrow vectors: still accurate."""
    if not toolchain.processor().startswith("x86_64"):
        pytest.skip("the flags are for x86-64")
    flags = [flag for flag in FLAGS if flag != "-march=native"]
    plain = load({name: EXPRESSIONS[name] for name in ("exp_f32", "log_f32", "sin_f32", "tanh_f32")}, tmp_path, flags)
    for name in ("exp", "log", "sin", "tanh"):
        with np.errstate(all="ignore"):
            check(plain[f"{name}_f32"](floats), UNARY[name][0](floats.astype(np.float64)), UNARY[name][1] + 0.3, floats)


@pytest.mark.parametrize("name", [*UNARY, "erf"])
def test_double(compiled, name):
    reference = erf if name == "erf" else UNARY[name][0]
    x = np.concatenate([np.random.default_rng(0).standard_normal(1000) * 5, SPECIAL.astype(np.float64)])
    with np.errstate(all="ignore"):
        want = np.asarray(reference(x))
    np.testing.assert_allclose(compiled[f"{name}_f64"](x), want, rtol=1e-14, atol=1e-300)


def test_power(compiled, floats):
    x = np.concatenate([floats[::40], SPECIAL, -np.arange(1, 50, dtype=np.float32)])
    for exponent in (*POWERS, 3.0, 2.5):
        y = np.full_like(x, exponent)
        with np.errstate(all="ignore"):
            want = np.power(x.astype(np.float64), y.astype(np.float64))
        check(compiled["power_f"](x, y), want, 0.51, x, y)
    for base in (*SPECIAL, np.float32(1.0000001), np.float32(0.99), np.float32(10)):
        b = np.full_like(x, base)
        with np.errstate(all="ignore"):
            want = np.power(b.astype(np.float64), x.astype(np.float64))
        check(compiled["power_f"](b, x), want, 0.51, b, x)


def test_atan2(compiled, floats):
    pairs = [x.reshape(-1) for x in np.meshgrid(SPECIAL, SPECIAL)]
    rng = np.random.default_rng(2)
    y, x = (
        np.concatenate([p, rng.permutation(floats)[:200_000], rng.standard_normal(1000)]).astype(np.float32)
        for p in pairs
    )
    # A quotient that underflows is checked only for being tiny: XLA flushes it.
    with np.errstate(all="ignore"):
        want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    normal = ~(np.abs(want) < 2.0**-126) | (want == 0)
    check(compiled["atan2_f"](y, x)[normal], want[normal], 2.0, y[normal], x[normal])


@pytest.mark.parametrize("t", ["f", "d"])
def test_extrema_propagate_nan(compiled, t):
    a, b = (x.reshape(-1) for x in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(compiled[f"maximum_{t}"](a, b), np.maximum(a, b))
        np.testing.assert_array_equal(compiled[f"minimum_{t}"](a, b), np.minimum(a, b))


@pytest.mark.parametrize("t", ["f", "d"])
def test_arithmetic_and_remainder(compiled, t):
    dtype = {"f": np.float32, "d": np.float64}[t]
    a, b = (x.reshape(-1).astype(dtype) for x in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        for name, reference in (
            ("add", np.add),
            ("subtract", np.subtract),
            ("multiply", np.multiply),
            ("divide", np.divide),
            ("remainder", np.fmod),
        ):
            np.testing.assert_array_equal(compiled[f"{name}_{t}"](a, b), reference(a, b), name)


def test_clamp_as_xla(compiled):
    normal = SPECIAL[~(np.abs(SPECIAL) < 2.0**-126) | (SPECIAL == 0)]  # XLA:CPU flushes the others
    low, x, high = (v.reshape(-1) for v in np.meshgrid(*[normal] * 3))
    np.testing.assert_array_equal(compiled["clamp_f"](low, x, high), np.asarray(lax.clamp(low, x, high)))


def test_is_finite(compiled, floats):
    assert (compiled["is_finite_f32"](floats) == np.isfinite(floats)).all()
    with np.errstate(all="ignore"):
        wide = np.concatenate([floats.astype(np.float64) * 1e270])
    assert (compiled["is_finite_f64"](wide) == np.isfinite(wide)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_total_order(compiled, dtype):
    ordered = np.array([-np.nan, -np.inf, -1, -1e-40, -0.0, 0.0, 1e-40, 1, np.inf, np.nan], dtype)
    ordered[0] = np.copysign(dtype(np.nan), -1)
    keys = compiled[f"total_f{8 * ordered.itemsize}"](ordered)
    assert (np.diff(keys.astype(object)) > 0).all()


@pytest.mark.parametrize("architecture", ["native", "haswell", "skylake-avx512"])
def test_gcc_vectorises(architecture):
    """A branch or a call in the way of the vectoriser costs a factor of ten and shows in no result."""
    command = toolchain.compiler()
    if "Free Software Foundation" not in toolchain.identity(command):
        pytest.skip("reads the report of GCC")
    if architecture != "native" and not toolchain.processor().startswith("x86_64"):
        pytest.skip("the compiler is for another processor")
    # fmod has no vector form; double goes to libm.
    names = [n for n, (_, types, _) in EXPRESSIONS.items() if "double" not in types and n != "remainder_f"]
    text = text_of({name: EXPRESSIONS[name] for name in names})
    flags = [f"-march={architecture}" if flag == "-march=native" else flag for flag in FLAGS]
    run = subprocess.run(
        [*command, *flags, "-fopt-info-vec-optimized", f"-I{RUNTIME}", "-x", "c++", "-c", "-o", "/dev/null", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    vectorised = {int(line) for line in re.findall(r"<stdin>:(\d+):\d+: optimized: loop vectorized", run.stderr)}
    lines = text.splitlines()
    missing = [name for name in names if not any(f" {name}(" in lines[line - 2] for line in vectorised)]
    assert not missing
