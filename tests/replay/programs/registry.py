"""Programs by name, and what several of them are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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
