"""A random program as Python text, which a failure prints to be run, with what its results may differ by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

FLOATS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""Significant bits."""
INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
DTYPES: dict[str, Any] = {
    "pred": np.dtype(bool),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{k}{n}": np.dtype(f"{'u' * (k == 'u')}int{n}") for k in "su" for n in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Value:
    """A value of the program: of a float no larger than ``most``; exact ones are multiples of ``2 ** -fraction``,
    others at most ``error`` from the exact value."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    most: float = 0.0
    fraction: int = 0
    error: float = 0.0

    @property
    def exact(self) -> bool:
        return self.error == 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Program:
    """A function ``f`` as text, its arguments, and for each result the most by which two implementations may differ."""

    lines: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    seed: int

    @property
    def text(self) -> str:
        head = f"def f({', '.join(v.name for v in self.inputs)}):"
        results = ", ".join(v.name for v in self.outputs)
        return "\n".join([head, *("    " + line for line in self.lines), f"    return ({results},)"])

    @property
    def fun(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"lax": lax, "jnp": jnp, "np": np, "D": DTYPES}
        exec(self.text, space)
        return space["f"]

    @property
    def args(self) -> list[jax.Array]:
        rng = np.random.default_rng(self.seed)
        return [jax.device_put(_input(rng, v)) for v in self.inputs]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{v.name}: {v.dtype}{list(v.shape)}" for v in self.inputs)
        return f"# {shapes}; seed {self.seed}\n{self.text}\n"


def _input(rng: np.random.Generator, v: Value) -> np.ndarray:
    dtype = DTYPES[v.dtype]
    if v.dtype == "pred":
        return rng.random(v.shape) < 0.5
    if v.dtype in FLOATS:
        steps = int(v.most * 2**v.fraction)
        return (rng.integers(-steps, steps + 1, v.shape) / 2**v.fraction).astype(dtype)
    info = np.iinfo(dtype)
    small = rng.integers(max(info.min, -9), 10, v.shape)
    full = rng.integers(info.min, info.max, v.shape, dtype=dtype, endpoint=True)
    return np.where(rng.random(v.shape) < 0.7, small, full).astype(dtype)


def differences(program: Program, got: Sequence[Any], want: Sequence[Any]) -> list[str]:
    """In which results two runs differ by more than they may."""
    found = []
    for v, g, w in zip(program.outputs, got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            found.append(f"{v.name}: {g.dtype}{g.shape} for {w.dtype}{w.shape}")
            continue
        if v.exact:
            bad = ~((g == w) | ((g != g) & (w != w)))
        else:
            a, b = g.astype(np.float64), w.astype(np.float64)
            with np.errstate(invalid="ignore"):
                bad = ~((np.abs(a - b) <= 2 * v.error) | (a == b) | (np.isnan(a) & np.isnan(b)))
        if bad.any():
            at = np.unravel_index(int(np.argmax(bad)), bad.shape)
            found.append(f"{v}: {bad.sum()} of {v.size} differ, at {at} {g[at]} for {w[at]}")
    return found
