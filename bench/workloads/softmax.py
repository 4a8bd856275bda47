"""Softmax along the last, a middle and the first axis, along long rows and many short ones."""

from __future__ import annotations

from typing import Any

import jax
from jax.typing import DTypeLike

from bench.workloads.base import Function, Maker, Size, Workload, normal


def _softmax(axis: int) -> Maker:
    def make(size: Size, dtype: DTypeLike) -> tuple[Function, tuple[Any, ...]]:
        def softmax(x: jax.Array) -> jax.Array:
            return jax.nn.softmax(x, axis)

        return softmax, (normal(0, size, dtype, scale=3.0),)

    return make


WORKLOADS = (
    Workload(
        "softmax_last",
        "softmax",
        _softmax(-1),
        (8192, 1024),
        ((256, 1024), (1023, 1000), (129, 77)),
        xla_launches=1,
        target=1,
    ),
    Workload(
        "softmax_long_row",
        "softmax",
        _softmax(-1),
        (64, 262144),
        ((4, 65536), (3, 50021)),
        xla_launches=5,
        target=1,
    ),
    Workload(
        "softmax_short_rows",
        "softmax",
        _softmax(-1),
        (262144, 64),
        ((4096, 128), (30011, 33)),
        xla_launches=1,
        target=1,
    ),
    Workload(
        "softmax_first",
        "softmax",
        _softmax(0),
        (8192, 1024),
        ((1024, 256), (1023, 1000), (129, 77)),
        xla_launches=5,
        target=1,
    ),
    Workload(
        "softmax_middle",
        "softmax",
        _softmax(1),
        (64, 128, 256),
        ((8, 64, 128), (7, 77, 100)),
        xla_launches=3,
        target=1,
    ),
)
