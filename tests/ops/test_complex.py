"""Complex numbers in kernels are as right as under ``jax.jit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch import stitch, stitch_jit
from jax_stitch.frontend.replay import StitchedGraph, replay
from jax_stitch.fusion.graph_passes import splitting
from jax_stitch.graph.rewrites.complex_parts import has_complex, with_parts
from jax_stitch.graph.verifier import verify
from tests.fusion import forced
from tests.hlo_files.programs import after

Function = Callable[..., Any]


def values(*dims: int, seed: int = 0, dtype: Any = np.complex64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype)


SPECIAL = np.asarray([0.0, -0.0, 1.0, -2.5, 1e-30, 3e30, np.inf, -np.inf, np.nan], np.float32)
PAIRS = (SPECIAL[:, None] + np.zeros_like(SPECIAL) + 0j).astype(np.complex64)
PAIRS.imag = SPECIAL

ONE: dict[str, Function] = {
    "abs": jnp.abs,
    "angle": jnp.angle,
    "conjugate": jnp.conj,
    "cos": jnp.cos,
    "exp": jnp.exp,
    "imaginary": jnp.imag,
    "is nan": jnp.isnan,
    "log": jnp.log,
    "negate": jnp.negative,
    "power": lambda x: x**3,
    "real": jnp.real,
    "reciprocal": lambda x: 1 / x,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "square": jnp.square,
    "tanh": jnp.tanh,
    "times i": lambda x: 1j * x,
    "where": lambda x: jnp.where(x.real > 0, x, -x),
}
TWO: dict[str, Function] = {
    "add": jnp.add,
    "divide": jnp.divide,
    "equal": jnp.equal,
    "multiply": jnp.multiply,
    "not equal": jnp.not_equal,
    "subtract": jnp.subtract,
    "by a real one": lambda x, y: x * y.real,
    "of parts": lambda x, y: lax.complex(x.real, y.imag),
    "inner product": lambda x, y: (jnp.conj(x) * y).sum(-1),
    "norm": lambda x, y: jnp.sqrt((jnp.abs(x - y) ** 2).sum()),
    "product": lambda x, y: jnp.einsum("ij,kj->ik", x, y),
}
MOVED: dict[str, Function] = {
    "transposed": lambda x: x.T * 2,
    "turned": lambda x: jnp.roll(x, 3, 1)[::-1] * x,
    "padded": lambda x: jnp.pad(x * 1j, ((1, 2), (0, 3)), constant_values=2),
    "joined": lambda x: jnp.concatenate([x, jnp.conj(x)], 1) + 1,
    "taken": lambda x: x[jnp.asarray([2, 0, 1]), 1:] * 3,
    "at a place": lambda x: (x * 2).at[1].set(0),
    "summed up": lambda x: jnp.cumsum(x, 1) * 2,
    "standardised": lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt((jnp.abs(x) ** 2).mean(1, keepdims=True)),
    "widened": lambda x: x.astype(jnp.complex128) * x.real.astype(jnp.complex128),
    "transformed": lambda x: jnp.fft.ifft(jnp.fft.fft(x * 2) * jnp.exp(-jnp.abs(x))).real,
}


def in_kernels(function: Function, *args: Any, device: str = "cpu", seed: int = 0) -> Any:
    """Return the results with all that may be in kernels in them."""
    with forced.everything_pays(seed):
        return jax.jit(stitch(function, strict=True, schedule_device=device))(*args)


def same(found: Any, want: Any, tolerance: float = 2e-5) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one(name: str, device: str) -> None:
    """Catches parts that are exchanged, or a sign."""
    x = values(7, 33)
    same(in_kernels(ONE[name], x, device=device), jax.jit(ONE[name])(x))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(name: str, device: str) -> None:
    x, y = values(7, 33), values(7, 33, seed=1)
    y[0, :5] = x[0, :5]
    same(in_kernels(TWO[name], x, y, device=device), jax.jit(TWO[name])(x, y))


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", MOVED)
def test_moved(name: str, device: str) -> None:
    """Catches a move of the parts of one operand alone."""
    x = values(5, 12)
    with jax.enable_x64(name == "widened"):
        same(in_kernels(MOVED[name], x, device=device), jax.jit(MOVED[name])(x))


@pytest.mark.parametrize("name", sorted({*ONE} - {"tanh"}))
def test_double_precision(name: str) -> None:
    with jax.enable_x64(True):
        x = values(3, 17, dtype=np.complex128)
        same(in_kernels(ONE[name], x), jax.jit(ONE[name])(x), 1e-13)


@pytest.mark.parametrize("name", ["abs", "conjugate", "negate", "real", "sign", "square", "where", "is nan"])
def test_infinities_and_nans(name: str) -> None:
    """Catches a square that overflows, and an infinity that becomes no number."""
    found, want = in_kernels(ONE[name], PAIRS), jax.jit(ONE[name])(PAIRS)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_allclose(np.nan_to_num(found), np.nan_to_num(want), rtol=1e-6)


OPERATIONS = """HloModule m

ENTRY e {
  x = c64[64] parameter(0)
  y = c64[64] parameter(1)
  q = c64[64] divide(x, y)
  s = f32[64] abs(x)
  r = c64[64] sqrt(x)
  l = c64[64] log(x)
  ROOT t = (c64[64], f32[64], c64[64], c64[64]) tuple(q, s, r, l)
}
"""


@pytest.mark.parametrize("scale", [1e-34, 1e-25, 1.0, 1e25, 1e37])
def test_what_is_taken_apart_neither_overflows_nor_underflows(scale: float) -> None:
    """Catches the square of a part: that of 1e25 is infinite in float32. (XLA may expand these operations itself.)"""
    x, y = values(64) * np.float32(scale), values(64, seed=1) * np.float32(scale)
    graph = with_parts(graphs.build(hlo_parser.parse(OPERATIONS)))
    found = [np.asarray(r) for r in jax.jit(replay(StitchedGraph(graph)))([x, y])]
    wide = x.astype(np.complex128)
    wanted = wide / y.astype(np.complex128), np.abs(wide), np.sqrt(wide), np.log(wide)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


def lru(h: Any, xs: Any, decay: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = decay * h + x
        return h, (h, h.real)

    return lax.scan(step, h, xs)


def lru_gradient(h: Any, xs: Any, decay: Any) -> Any:
    return jax.grad(lambda d: jnp.abs(lru(h, xs, d)[1][0]).sum())(decay)


def mandelbrot(c: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        z, n = state
        z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
        return z, n + (jnp.abs(z) < 2)

    return lax.fori_loop(0, 12, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))


def wave(psi: Any) -> Any:
    def step(p: Any, _: Any) -> Any:
        p = p + 0.01j * (jnp.roll(p, 1) + jnp.roll(p, -1) - 2 * p)
        return p / jnp.sqrt((jnp.abs(p) ** 2).sum()), (p * jnp.conj(p)).real.sum()

    return lax.scan(step, psi, None, length=20)


def until(z: Any) -> Any:
    def goes_on(state: Any) -> Any:
        return (jnp.abs(state[0]).max() > 0.5) & (state[1] < 30)

    return lax.while_loop(goes_on, lambda state: (state[0] * (0.8 + 0.1j), state[1] + 1), (z, 0))


def nested(z: Any) -> Any:
    def outer(z: Any, x: Any) -> Any:
        z = lax.fori_loop(0, 3, lambda _, z: z * 0.9j + x, z)
        return z, jnp.abs(z)

    return lax.scan(outer, z, jnp.stack([z, -z, z * 2]))


def rotations(z: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        buffer, z = carry
        z = z * jnp.exp(0.1j)
        return (buffer.at[i].set(z), z), None

    return lax.scan(step, (jnp.zeros((6, *z.shape), z.dtype), z), jnp.arange(6))[0]


LOOPS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "lru": (lru, (values(8, 16), values(30, 8, 16, seed=1), 0.9 * values(16, seed=2) / np.abs(values(16, seed=2)))),
    "mandelbrot": (mandelbrot, (0.5 * values(9, 32),)),
    "wave": (wave, (values(64),)),
    "until": (until, (values(12),)),
    "nested": (nested, (values(5),)),
    "rotations": (rotations, (values(4),)),
    "gradient": (lru_gradient, (values(3, 4), values(9, 3, 4), 0.5 * values(4))),
    "batched": (jax.vmap(wave), (values(3, 40),)),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str, device: str) -> None:
    """Catches a carried value of which one part is that of the step before."""
    function, args = LOOPS[name]
    want = jax.jit(function)(*args)
    same(jax.jit(stitch(function, schedule_device=device))(*args), want, 1e-4)


@pytest.mark.parametrize("name", ["lru", "mandelbrot", "nested"])
def test_loops_are_planned_as_a_few_launches(name: str) -> None:
    function, args = LOOPS[name]
    plan = stitch_jit(function).plan(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args), device="h200")
    assert plan.launches <= 3


def test_the_pass_leaves_real_graphs_alone() -> None:
    graph = graphs.build(hlo_parser.parse(after(lambda x: jnp.exp(x) + 1, np.ones(8, np.float32))))
    assert splitting(frozenset()).run(graph, forced.device("h200")) is graph


@pytest.mark.parametrize("name", [*ONE, *MOVED])
def test_the_pass_keeps_what_is_computed(name: str) -> None:
    """Catches a node of the wrong type, and an operation that is taken apart though it has no such form."""
    function, x = {**ONE, **MOVED}[name], values(5, 12)
    with jax.enable_x64(name == "widened"):
        graph = graphs.build(hlo_parser.parse(after(function, x)))
        made = with_parts(graph)
        assert has_complex(graph)
        verify(made)
        (found,) = replay(StitchedGraph(made))([x])
        same(found, jax.jit(function)(x))
