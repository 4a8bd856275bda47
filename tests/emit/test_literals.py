"""Constants survive the way through C++ text to the bit."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS
from jax_stitch.emit.cpp import scalar

BITS = {
    "f32": (np.float32, np.uint32, [0, 1, 0x80000000, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000,
                                    0xFF800000, 0x7FC00000, 0xFFC00001, 0x3DCCCCCD, 0x4B800001, 0x6258D727]),
    "f64": (np.float64, np.uint64, [0, 1, 1 << 63, (1 << 63) + 1, (1 << 52) - 1, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52,
                                    0xFFF << 52, 0x7FF8000000000001, 0x3FB999999999999A, 0x4340000000000001]),
    "f16": (np.float16, np.uint16, [0, 1, 0x8000, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x3555]),
    "bf16": (ml_dtypes.bfloat16, np.uint16, [0, 1, 0x8000, 0x8001, 0x007F, 0x0080, 0x7F7F, 0x7F80, 0xFF80, 0x3EAB]),
    **{
        f"{kind}{n}": (np.dtype(f"{'u' * (kind == 'u')}int{n}"), np.dtype(f"uint{n}"),
                       [0, 1, (1 << n) - 1, 1 << n - 1, (1 << n - 1) - 1])
        for kind in "su"
        for n in (8, 16, 32, 64)
    },
}  # fmt: skip


def test_literals_are_exact(tmp_path: Path) -> None:
    """NaN payloads, infinities, zeros with a sign, subnormals, the smallest integers (whose digits are no literal)."""
    lines, wanted = ['#include "scalar.h"'], []
    for dtype, (numpy, bits, patterns) in BITS.items():
        values = np.array(patterns, bits).view(numpy)
        ctype = scalar.STORAGE[dtype]
        elements = ", ".join(scalar.store(dtype, scalar.literal(v, dtype)) for v in values)
        lines.append(f'extern "C" void get_{dtype}({ctype}* out) {{')
        lines.append(f"  const {ctype} values[] = {{{elements}}};")
        lines.append(f"  for (int i = 0; i < {len(values)}; ++i) out[i] = values[i];\n}}")
        wanted.append((dtype, np.array(patterns, bits)))
    path = tmp_path / "literals.so"
    options = (*FLAGS, "-Wall", "-Werror", f"-I{RUNTIME}")
    path.write_bytes(toolchain.shared_object("literals", "\n".join(lines), options))
    library = ctypes.CDLL(str(path))
    for dtype, patterns in wanted:
        got = np.empty_like(patterns)
        getattr(library, f"get_{dtype}")(ctypes.c_void_p(got.ctypes.data))
        np.testing.assert_array_equal(got, patterns, err_msg=dtype)


def test_truth_values() -> None:
    assert [scalar.literal(np.bool_(b), "pred") for b in (True, False)] == ["true", "false"]
