"""A program for each row of the table: what ``jax.jit`` gets wrong on the versions that have the fault.

``python -m tests.known_faults.programs NAME...`` runs them under plain ``jax.jit`` and prints which are right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """A function of some arrays, and what it returns where nothing is wrong."""

    function: Callable[..., Any]
    args: tuple[Array, ...]
    right: Array

    def is_right(self, result: Any) -> bool:
        """Whether a result is that, but for rounding."""
        return bool(np.allclose(np.asarray(result), self.right, rtol=1e-5, equal_nan=True))


def _squares(matrix: Any, rows: Any) -> Any:
    return jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(rows)


def _fused_product() -> Program:
    first = np.arange(40_000, dtype=np.float32)
    rows = np.stack((first, 0 * first, 0 * first), 1)
    return Program(_squares, (np.eye(3, dtype=np.float32), rows), first**2)


def _high_rank_sum() -> Program:
    """Return what ends the process on AVX2 and AVX-512 alike: of others the sums are right on some processors."""
    x, y = np.random.default_rng(0).random((2, 2, 3, 1, 2, 2, 8, 8, 8), np.float32)
    return Program(lambda x, y: jnp.sum(x * y, 3), (x, y), (x * y).sum(3))


def _shifted_update() -> Program:
    x = np.arange(128, dtype=np.int32).reshape(8, 16)

    def shifted(x: Any) -> Any:
        base = 3 * x + 1
        return base.at[1:].set(base[:-1])[None]

    base = 3 * x + 1
    return Program(shifted, (x,), np.concatenate((base[:1], base[:-1]))[None])


def _lost_nan() -> Program:
    x = np.random.default_rng(0).random((64, 64), np.float32)
    x[::2, 3] = np.nan
    return Program(lambda x: jnp.min(x, 1), (x,), x.min(1))


def _softmax_of_large() -> Program:
    x = np.random.default_rng(0).standard_normal((16, 64), np.float32)
    return Program(lambda x: jax.nn.softmax(x * 1e10), (x,), x == x.max(1, keepdims=True))


def _atan2_of_subnormals() -> Program:
    x = np.arange(1, 9, dtype=np.float32) * np.float32(1e-40)
    return Program(lambda x: jnp.arctan2(x, -x), (x,), np.full(8, 0.75 * np.pi, np.float32))


def _subnormal_bfloat16() -> Program:
    x = np.arange(1, 9, dtype=np.uint16).view(jnp.bfloat16)
    return Program(jnp.argmax, (x,), np.array(7))


def _narrow_place() -> Program:
    def written(x: Any, place: Any) -> Any:
        new = jnp.ones(1, x.dtype)
        return lax.dynamic_update_slice(x[:, 0], new, (place,), allow_negative_indices=False)[:, None]

    right = (np.arange(300) == 100).astype(np.float32)[:, None]
    return Program(written, (np.zeros((300, 4), np.float32), np.array(100, np.int8)), right)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "fused_product": _fused_product,
    "high_rank_sum": _high_rank_sum,
    "shifted_update": _shifted_update,
    "lost_nan": _lost_nan,
    "softmax_of_large": _softmax_of_large,
    "atan2_of_subnormals": _atan2_of_subnormals,
    "subnormal_bfloat16": _subnormal_bfloat16,
    "narrow_place": _narrow_place,
}
"""By the name of the fault."""


def main(names: list[str]) -> None:
    """Print, by name, whether plain ``jax.jit`` is right. A process that dies prints what it had found by then."""
    for name in names:
        program = PROGRAMS[name]()
        right = program.is_right(jax.jit(program.function)(*program.args))
        print(json.dumps([name, right]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
