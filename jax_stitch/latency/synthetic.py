"""Programs by which a device's constants are measured: one class of instructions at a time, at sizes that stay in a
cache; and copies of all sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch.devices import Device
from jax_stitch.fusion import explore
from jax_stitch.schedule import ScheduledKernel, schedule
from jax_stitch.util.jax_names import hlo

COUNT = 4
"""Operations of a kind for each element, none of which waits for another."""

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda v, x: jnp.maximum(v, x),
    "convert": lambda v, x: v.astype(jnp.int32).astype(jnp.float32),
    "atan2": jax.lax.atan2,
    "cbrt": lambda v, x: jax.lax.cbrt(v),
    "cosine": lambda v, x: jax.lax.cos(v),
    "divide": lambda v, x: x / v,
    "erf": lambda v, x: jax.lax.erf(v),
    "exponential": lambda v, x: jax.lax.exp(v),
    "exponential-minus-one": lambda v, x: jax.lax.expm1(v),
    "log": lambda v, x: jax.lax.log(v),
    "log-plus-one": lambda v, x: jax.lax.log1p(v),
    "logistic": lambda v, x: jax.lax.logistic(v),
    "power": jax.lax.pow,
    "remainder": jax.lax.rem,
    "rsqrt": lambda v, x: jax.lax.rsqrt(v),
    "sine": lambda v, x: jax.lax.sin(v),
    "sqrt": lambda v, x: jax.lax.sqrt(v),
    "tan": lambda v, x: jax.lax.tan(v),
    "tanh": lambda v, x: jax.lax.tanh(v),
}
"""What is done to ``COUNT`` multiples ``v`` of a value ``x``, by the class of instructions that it measures."""

COPIES = tuple(1 << k for k in range(12, 28))
"""Bytes moved by the copies of the bandwidth curve."""


CACHED = (1 << 15, 1 << 19)
"""The least and the most bytes moved by copies that instructions alone explain."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function of arrays of these shapes that becomes one kernel."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[jax.ShapeDtypeStruct, ...]

    def values(self) -> list[np.ndarray]:
        """Return arguments: floats between 0.5 and 1.5, where no operation is at its special cases; integers from
        0 to 15.
        """
        rng = np.random.default_rng(0)
        return [
            rng.uniform(0.5, 1.5, a.shape).astype(a.dtype)
            if jnp.issubdtype(a.dtype, jnp.floating)
            else rng.integers(1, 16, a.shape).astype(a.dtype)
            for a in self.arrays
        ]

    def kernels(self, device: Device) -> list[ScheduledKernel]:
        """Return its kernels on a device. It is planned as JAX writes it, every operation by itself."""
        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        lowered: Any = jax.jit(self.function, keep_unused=True).lower(*self.arrays).compiler_ir("hlo")
        graph = graphs.build(hlo_parser.parse(str(lowered.as_hlo_module().to_string(options))))
        plan = explore(graph, device)
        return [schedule(plan.graph, k, device, f"synthetic_{n}") for n, k in enumerate(plan.kernels)]


def of(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def instructions() -> Iterator[Program]:
    """Yield a program for each class of instructions."""
    square = of(256, 256)
    for name, operation in OPERATIONS.items():
        yield Program(name, functools.partial(_many, operation, COUNT), (square,))
    yield Program("much arithmetic", functools.partial(_many, OPERATIONS["arithmetic"], 4 * COUNT), (square,))
    yield Program(
        "integer-divide", lambda x, y: jax.lax.div(x, y) + jax.lax.div(y, x), (of(256, 256, dtype=jnp.int32),) * 2
    )
    yield Program("bf16", functools.partial(_many, jnp.maximum, COUNT), (of(256, 256, dtype=jnp.bfloat16),))
    yield from _structures()
    yield from (program for size, program in copies() if CACHED[0] <= size <= CACHED[1])


def _structures() -> Iterator[Program]:
    for rows, places in ((32, 4096), (512, 256), (1024, 100), (4096, 32), (4096, 9)):
        yield Program(f"sums of {places}", lambda x: jnp.sqrt((x * x).sum(1)), (of(rows, places),))
        yield Program(f"normed {places}", lambda x: x * x.sum(1, keepdims=True), (of(rows, places),))
        yield Program(f"exp sums of {places}", lambda x: jnp.log(jnp.exp(x).sum(1)), (of(rows, places),))
        yield Program(f"twice {places}", _twice, (of(rows, places),))
    for rows, places in ((256, 512), (2048, 64)):
        yield Program(f"sums of columns {rows}", lambda x: x * x.sum(0), (of(rows, places),))
    grouped = of(8, 64, 64, 2)
    yield Program("interleaved", lambda x: x * (x * x).sum((1, 3), keepdims=True), (grouped,))
    yield Program("middle", lambda x: x * x.sum(1, keepdims=True), (of(32, 64, 64),))
    yield Program("transposed", lambda x, y: x.T * y + y, (of(384, 384), of(384, 384)))
    yield Program("transposed sums", lambda x, y: (x.T * y).sum(1), (of(384, 384), of(384, 384)))
    yield Program("scans", lambda x: jax.lax.cumsum(x * x, axis=1) + x, (of(128, 512),))
    yield Program("scans of columns", lambda x: jax.lax.cumsum(x * x, axis=0) + x, (of(512, 128),))
    yield Program("rows taken", lambda x, i: jnp.tanh(x[i]) * 2.0, (of(512, 64), of(1024, dtype=jnp.int32)))
    yield Program("loop", lambda x: jax.lax.fori_loop(0, 64, lambda _, v: v * 0.9 + x, x), (of(4096),))
    yield Program("long loop", functools.partial(_oscillator, 200), (of(256), of(256)))


def _twice(x: Any) -> Any:
    x = x - x.max(1, keepdims=True)
    return x / jnp.sqrt((x * x).sum(1, keepdims=True))


def _oscillator(steps: int, x: Any, v: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        x, v = state
        v = v - 0.01 * jnp.sin(x)
        return x + 0.01 * v, v

    return jax.lax.fori_loop(0, steps, step, (x, v))


def copies(sizes: Sequence[int] = COPIES) -> Iterator[tuple[int, Program]]:
    """Yield programs that move so many bytes and hardly compute, with these."""
    for size in sizes:
        places = min(1024, size // 32)
        yield size, Program(f"copy of {size}", lambda x: x * 0.5 + 1.0, (of(size // 8 // places, places),))


FEW, MANY = 4, 32
"""Buffers of the two launches of next to no work whose difference is what buffers take."""


def launches() -> Iterator[tuple[int, Program]]:
    """Yield programs of hardly any work by the number of their buffers: one result and the arguments that are its
    sum.
    """
    for count in (FEW, MANY):
        yield count, Program(f"{count} buffers", lambda *xs: sum(xs) * 2.0, (of(32),) * (count - 1))


def overlapping() -> Iterator[Program]:
    """Yield programs on arrays larger than a cache that compute about as long as they wait for memory."""
    for count in (2, 3, 5):
        yield Program(f"exp {count}", functools.partial(_many, OPERATIONS["exponential"], count), (of(4096, 2048),))


def _many(operation: Callable[[Any, Any], Any], count: int, x: Any) -> Any:
    total = operation(x, x)
    for k in range(1, count):
        total = total + operation(x * x.dtype.type(1 + k / 8), x)
    return total
