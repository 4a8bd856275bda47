"""Sorts: one of a single row was returned unsorted, and what reads a sort along another axis was wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def floats(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, below: int = 10, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, shape).astype(dtype)


SPECIAL = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, -1.0, np.nan, 3.0, -np.nan, 0.0], np.float32)

PROGRAMS: dict[str, Program] = {
    "one row, then doubled": (lambda a: jnp.sort(a) * 2, (floats(1024),)),
    "one row, arguments": (lambda a: jnp.argsort(a) + 1, (floats(1024),)),
    "one row, taken along": (lambda a, i: jnp.take_along_axis(a, i, 0) * 2, (floats(1024), integers(1024, below=1024))),
    "two long rows": (lambda a: jnp.sort(a, -1) * 2, (floats(2, 2048),)),
    "many long rows": (lambda a: jnp.sort(a, -1) * 2, (floats(64, 2048),)),
    "maximum across rows": (lambda x: jnp.sort(x, -1).max(1), (floats(6, 4, 2),)),
    "first argument, then a sum": (lambda x: jnp.argsort(x, -1)[..., 0].sum(-1), (floats(6, 4, 8),)),
    "place of the largest, then a sum": (lambda x: lax.top_k(x, 1)[1].sum(1), (floats(6, 4, 8),)),
    "first axis": (lambda x: jnp.sort(x, 0) - x, (floats(33, 5),)),
    "axis in the middle": (lambda x: jnp.sort(x, 1).sum(-1), (floats(3, 31, 4),)),
    "one element to a row": (lambda x: jnp.sort(x, -1) * 2, (floats(7, 1),)),
    "one row of one element": (lambda x: jnp.sort(x) + 1, (floats(1),)),
    "rows of two": (lambda x: jnp.sort(x, -1)[..., ::-1] * 2, (floats(9, 2),)),
    "sum along what is sorted": (lambda x: jnp.cumsum(jnp.sort(x, -1), -1).sum(-1), (floats(5, 65),)),
    "product of two sorts": (lambda x: jnp.sort(x, 0) * jnp.sort(x, 1), (floats(17, 17),)),
    "sorted twice": (lambda x: jnp.sort(jnp.sort(x, 1), 0) * 2, (floats(8, 16),)),
    "sorted, then turned": (lambda x: (jnp.sort(x, -1) * 2).T + 1, (floats(12, 20),)),
    "made of a product of sums": (lambda x: jnp.sort(x - x.mean(-1, keepdims=True), -1) * 2, (floats(6, 100),)),
    "descending": (lambda x: jnp.sort(x, -1, descending=True) * 2, (floats(4, 129),)),
    "ties stay in order": (lambda x: jnp.argsort(x, -1, stable=True) * 2, (integers(5, 64, below=4),)),
    "whole numbers of one byte": (lambda x: jnp.sort(x, -1) + 1, (integers(3, 100, below=255, dtype=np.uint8),)),
    "truth values": (lambda x: jnp.sort(x, -1).astype(jnp.int32) * 2, (integers(3, 33, below=2).astype(bool),)),
    "halves": (lambda x: jnp.sort(x, -1) * 2, (floats(4, 63, dtype=np.float16),)),
    "brain halves": (lambda x: jnp.sort(x, -1) * 2, (floats(4, 63).astype(ml_dtypes.bfloat16),)),
    "NaN and both zeros": (lambda x: jnp.sort(x) * 2, (SPECIAL,)),
    "arguments of NaN and both zeros": (lambda x: jnp.argsort(x) * 2, (SPECIAL,)),
    "two keys": (
        lambda a, b: [r + 1 for r in lax.sort((a, b), num_keys=2)],
        (integers(6, 40, below=3), floats(6, 40)),
    ),
    "a key and what goes with it": (
        lambda a, b: [r * 2 for r in lax.sort((a, b, -b), num_keys=1)],
        (floats(1, 513), floats(1, 513, seed=2)),
    ),
    "largest three and where": (lambda x: [r * 2 for r in lax.top_k(x, 3)], (floats(5, 37),)),
    "largest of one row": (lambda x: lax.top_k(x, 5)[0].sum(), (floats(1025),)),
    "largest halves and where": (lambda x: [r + 1 for r in lax.top_k(x, 2)], (floats(5, 9, dtype=np.float16),)),
    "largest of one row of halves": (lambda x: lax.top_k(x, 2)[1], (floats(7, dtype=np.float16),)),
    "largest brain halves and where": (
        lambda x: [r + 1 for r in lax.top_k(x, 3)],
        (floats(4, 31).astype(ml_dtypes.bfloat16),),
    ),
    "largest halves, NaN and both zeros": (lambda x: lax.top_k(x, 6), (SPECIAL.astype(np.float16),)),
    "largest magnitude by its bits": (
        lambda x: lax.reduce(
            x,
            np.float16(0),
            lambda a, b: lax.select(
                lax.bitcast_convert_type(a, jnp.int16) > lax.bitcast_convert_type(b, jnp.int16), a, b
            ),
            (1,),
        ),
        (np.abs(floats(6, 40, dtype=np.float16)),),
    ),
    "largest magnitude of columns by its bits": (
        lambda x: lax.reduce(
            x,
            np.float16(0),
            lambda a, b: lax.select(
                lax.bitcast_convert_type(a, jnp.int16) > lax.bitcast_convert_type(b, jnp.int16), a, b
            ),
            (0,),
        ),
        (np.abs(floats(3000, 4, dtype=np.float16)),),
    ),
    "median": (lambda x: jnp.median(x, 0) * 2, (floats(31, 6),)),
    "quantiles": (lambda x: jnp.quantile(x, jnp.array([0.1, 0.5]), axis=1), (floats(6, 33),)),
    "taken along the last axis": (
        lambda x, i: jnp.take_along_axis(x, i, -1).sum(0),
        (floats(6, 32), integers(6, 32, below=32)),
    ),
    "rank of each": (lambda x: jnp.argsort(jnp.argsort(x, -1), -1) + 1, (floats(3, 50),)),
    "leading dimensions of one": (lambda x: jnp.sort(x, -1) * 2, (floats(1, 1, 300),)),
    "no rows": (lambda x: jnp.sort(x, -1) * 2, (floats(0, 8),)),
}
