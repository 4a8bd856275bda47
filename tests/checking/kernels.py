"""Kernels written by hand for the checking mode."""

from __future__ import annotations

from typing import Any

from jax_stitch.emit import KernelSource
from jax_stitch.graph.model import TensorType

FLOATS = 256
HEAD = '#include "stitch.h"\n'


def kernel(
    body: str,
    *,
    inputs: tuple[TensorType, ...] = (TensorType("f32", (FLOATS,)),),
    outputs: tuple[TensorType, ...] = (TensorType("f32", (FLOATS,)),),
    scratch: tuple[TensorType, ...] = (),
    before: str = "",
    **launch: Any,
) -> KernelSource:
    """A kernel of ``body``, which has ``in0``, ``out0``, ..., ``shared`` (as floats), ``t`` and ``b``; ``launch`` has
    fields of ``KernelSource``.

    The line of ``body`` that ends in "// here" is what ``line_of`` finds.
    """
    ctypes = {"f32": "float", "s32": "int32_t", "f64": "double", "u8": "uint8_t"}
    parameters = [f"const {ctypes[t.dtype]}* in{k}" for k, t in enumerate(inputs)]
    parameters += [f"{ctypes[t.dtype]}* out{k}" for k, t in enumerate(outputs)]
    parameters += [f"{ctypes[t.dtype]}* scratch{k}" for k, t in enumerate(scratch)]
    parameters += ["unsigned long long* arrivals"] if launch.get("phases") else []
    text = f"""{HEAD}{before}
extern "C" __global__ void planted({", ".join(parameters)}) {{
  ST_DYNAMIC_SHARED(memory)
  float* const shared = reinterpret_cast<float*>(memory);
  const int t = threadIdx.x, b = blockIdx.x;
  (void)shared, (void)t, (void)b;
{body}
}}
"""
    how = {"grid": 1, "block": 64, "shared_bytes": 1024, **launch}
    return KernelSource("planted", text, inputs, outputs, scratch=scratch, **how)


def line_of(source: KernelSource, mark: str = "// here") -> int:
    """The number of the marked line."""
    (found,) = (n for n, line in enumerate(source.text.splitlines(), 1) if line.endswith(mark))
    return found
