"""HLO's names of element types as NumPy dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from jax_stitch.graph.model import TensorType

_DTYPES: dict[str, np.dtype] = {
    "pred": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{f"s{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    **{f"c{n}": np.dtype(f"complex{n}") for n in (64, 128)},
}


def numpy_dtype(tensor: TensorType) -> np.dtype:
    """Return the dtype of a kernel's buffer. Raises ``ValueError`` for element types that kernels do not handle."""
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"Kernels have no buffers of {tensor.dtype} elements")
    return _DTYPES[tensor.dtype]


def byte_size(tensor: TensorType) -> int:
    """Return bytes of a kernel's buffer."""
    return tensor.size * numpy_dtype(tensor).itemsize
