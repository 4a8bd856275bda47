"""Integer and pred operations, against XLA's own on the same values: wrap-around, division by zero, shifts by too
much."""

from __future__ import annotations

import ctypes
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS
from tests.runtime.conftest import parameters

INTEGERS = {f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)}
UNARY = {
    "negate": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "bitwise_not": lax.bitwise_not,
    "popcnt": lax.population_count,
    "count_leading_zeros": lax.clz,
}
BINARY = {
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "mulhi": lax.mulhi,
    "divide": lax.div,
    "remainder": lax.rem,
    "maximum": lax.max,
    "minimum": lax.min,
    "bitwise_and": lax.bitwise_and,
    "bitwise_or": lax.bitwise_or,
    "bitwise_xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
}
PRED = {
    "add": np.logical_or,
    "multiply": np.logical_and,
    "subtract": np.logical_xor,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
    "bitwise_and": np.logical_and,
    "bitwise_or": np.logical_or,
    "bitwise_xor": np.logical_xor,
}
EXPRESSIONS = {
    **{f"{op}_{n}": (f"st::{op}(a)", [c], c) for n, c in INTEGERS.items() for op in UNARY},
    **{f"{op}_{n}": (f"st::{op}(a, b)", [c, c], c) for n, c in INTEGERS.items() for op in BINARY},
    **{f"power_{n}": ("st::power(a, b)", [c, c], c) for n, c in INTEGERS.items()},
    **{f"clamp_{n}": ("st::clamp(a, b, c)", [c, c, c], c) for n, c in INTEGERS.items()},
    **{f"{op}_bool": (f"st::{op}(a, b)", ["bool", "bool"], "bool") for op in PRED},
    "bitwise_not_bool": ("st::bitwise_not(a)", ["bool"], "bool"),
}


OF_CASES = {name for name in EXPRESSIONS if not name.endswith("_bool")}


def named(op: str = "", dtype: str = "", **_: object) -> list[str]:
    return [f"{op}_{dtype}"] if op else [f"clamp_{dtype}", f"power_{dtype}"]


def values(dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    edges = [
        0,
        1,
        2,
        3,
        7,
        8,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        65,
        info.max,
        info.max - 1,
        info.min,
        info.min + 1,
        -1,
        -2,
        -3,
    ]
    edges = np.array([v for v in edges if info.min <= v <= info.max], dtype)
    return np.concatenate([edges, np.random.default_rng(1).integers(info.min, info.max, 40, dtype, endpoint=True)])


def check(got: np.ndarray, want: np.ndarray, *operands: np.ndarray) -> None:
    wrong = np.flatnonzero(got != want)
    assert wrong.size == 0, [(*(int(x[i]) for x in operands), int(got[i]), int(want[i])) for i in wrong[:5]]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", UNARY)
def test_unary(compiled, op, dtype):
    x = values(dtype)
    if op == "abs" and dtype.startswith("u"):
        return check(compiled[f"abs_{dtype}"](x), x, x)
    with jax.enable_x64(True):
        want = np.asarray(jax.jit(UNARY[op])(jnp.asarray(x)))
    check(compiled[f"{op}_{dtype}"](x), want, x)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", BINARY)
def test_binary(compiled, op, dtype):
    a, b = (x.reshape(-1) for x in np.meshgrid(values(dtype), values(dtype)))
    with jax.enable_x64(True):
        want = np.asarray(jax.jit(BINARY[op])(jnp.asarray(a), jnp.asarray(b)))
    check(compiled[f"{op}_{dtype}"](a, b), want, a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_clamp(compiled, dtype):
    low, x, high = (x.reshape(-1) for x in np.meshgrid(*[values(dtype)[::4]] * 3))
    with jax.enable_x64(True):
        want = np.asarray(jax.jit(lax.clamp)(jnp.asarray(low), jnp.asarray(x), jnp.asarray(high)))
    check(compiled[f"clamp_{dtype}"](low, x, high), want, low, x, high)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_power(compiled, dtype):
    """Modulo 2^width; for negative exponents the integer part of the reciprocal. (JAX itself never emits this
    operation.)"""
    a, b = (x.reshape(-1) for x in np.meshgrid(values(dtype), values(dtype)))
    info = np.iinfo(dtype)

    def power(x: int, n: int) -> int:
        if n < 0:
            return {1: 1, -1: -1 if n % 2 else 1}.get(x, 0)
        wrapped = pow(x, n, 2**info.bits)
        return wrapped - 2**info.bits if wrapped > info.max else wrapped

    want = np.array([power(int(x), int(n)) for x, n in zip(a, b, strict=True)], dtype)
    check(compiled[f"power_{dtype}"](a, b), want, a, b)


@pytest.mark.parametrize("op", PRED)
def test_pred(compiled, op):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    check(compiled[f"{op}_bool"](a, b), PRED[op](a, b), a, b)


def test_pred_not(compiled):
    assert compiled["bitwise_not_bool"](np.array([False, True])).tolist() == [True, False]


PLACES = 60


@pytest.fixture(scope="module")
def of_places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Functions that compute each unary operation of a few small numbers that the C++ compiler knows."""
    text = '#include "stitch.h"\n'
    for op, name in sorted({(given["op"], given["name"]) for given in parameters(request) if "name" in given}):
        ctype = INTEGERS[name]
        text += (
            f'extern "C" void {op}_{name}({ctype}* ST_RESTRICT out) {{\n'
            f"  st::places<int, 0, {PLACES}, 16>(0, [](const int j) ST_INLINE {{ return j; }})\n"
            f"      << [&](const int j, int, int) ST_INLINE {{ out[j] = st::{op}({ctype}(j % 4)); }};\n}}\n"
        )
    path: Path = tmp_path_factory.mktemp("places") / "places.so"
    path.write_bytes(toolchain.shared_object("places", text, (*FLAGS, f"-I{RUNTIME}")))
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", UNARY)
def test_of_constants(of_places: ctypes.CDLL, op: str, name: str) -> None:
    """GCC 12 folds counts of the bits of a vector of constants wrongly."""
    out = np.zeros(PLACES, name)
    getattr(of_places, f"{op}_{name}")(ctypes.c_void_p(out.ctypes.data))
    with jax.enable_x64(True):
        x = jnp.arange(PLACES).astype(name) % 4
        np.testing.assert_array_equal(out, jnp.abs(x) if op == "abs" else UNARY[op](x))  # lax.abs takes signed ones
