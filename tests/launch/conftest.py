"""Kernels for the CPU and described GPUs, small enough to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

HOST = """#include "scalar.h"
extern "C" void NAME(void** b, int64_t first, int64_t last) {
  for (int64_t block = first; block < last; ++block) {
BODY
  }
}
"""


def make(
    body: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], grid: int, name: str = "kernel"
) -> KernelSource:
    """A host kernel whose blocks each run ``body``, which sees ``b`` (the buffers) and ``block``."""
    text = HOST.replace("NAME", name).replace("BODY", body)
    return KernelSource(name, text, tuple(inputs), tuple(outputs), grid, 256, 0)


@pytest.fixture
def host_source() -> Callable[..., KernelSource]:
    return make


@pytest.fixture
def add_one() -> Callable[[int], KernelSource]:
    """y = x + 1 over f32[size], 64 elements a block (the last one short)."""

    def source(size: int) -> KernelSource:
        tensor = TensorType("f32", (size,))
        body = f"""
    const int64_t end = block * 64 + 64 < {size} ? block * 64 + 64 : {size};
    for (int64_t i = block * 64; i < end; ++i) ((float*)b[1])[i] = ((const float*)b[0])[i] + 1.0f;"""
        return make(body, [tensor], [tensor], -(-size // 64), "add_one")

    return source
