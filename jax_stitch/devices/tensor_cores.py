"""Tensor cores: the types that they multiply, and how fast.

Rates are the data sheets' dense ones (NVIDIA's white papers on the A100, the RTX 40 and the H100), in multiplications
of one multiprocessor per clock. ``share`` is what ``mma.sync`` reaches of them, the one instruction that all
generations have: on an H100 0.62 of what ``wgmma`` does (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking", 2024); of later ones nothing is known here, and they are taken for an H100.
"""

from __future__ import annotations

from msgspec import Struct


class MatrixUnit(Struct, frozen=True):
    """How factors of one element type are multiplied: rounded to ``bits`` of exponent and mantissa, ``rate`` of them
    per clock of a multiprocessor, ``steps`` terms of a sum in one instruction. Sums are f32.
    """

    bits: tuple[int, int]
    rate: float
    share: float
    steps: int


_RATES = {(8, 0): (512, 1.0), (8, 6): (128, 1.0), (8, 9): (128, 1.0), (9, 0): (1024, 0.62)}
"""The rate of f32 as tf32, and the share; the half types are twice as fast."""


def matrix_unit(compute_capability: tuple[int, int] | None, dtype: str) -> MatrixUnit | None:
    """Return how a GPU's tensor cores multiply factors of a type; None where they do not, or not by ``mma.sync``."""
    bits = {"f32": (8, 10), "bf16": (8, 7), "f16": (5, 10)}.get(dtype)
    if bits is None or compute_capability is None or compute_capability < (8, 0):
        return None
    rate, share = _RATES[max(known for known in _RATES if known <= compute_capability)]
    return MatrixUnit(bits, rate * (1 if dtype == "f32" else 2), share, 8 if dtype == "f32" else 16)
