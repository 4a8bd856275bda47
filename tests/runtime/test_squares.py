"""Squares of what lies across a host's way: turned in registers or number by number, each number is at its place."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS

TYPES = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "uint64_t": np.uint64}
ARCHITECTURES = ("native", "x86-64", "haswell")
"""Vectors of this processor, of 16 bytes and of 32."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if request.param == "haswell" and not toolchain.has_avx512():
        pytest.skip("it may lack some of their instructions")
    flags = [f"-march={request.param}" if flag == "-march=native" else flag for flag in FLAGS]
    if request.param != "native" and not toolchain.processor().startswith("x86_64"):
        pytest.skip("the flags are for x86-64")
    text = '#include "stitch.h"\n'
    for t in TYPES:
        text += (
            f'extern "C" void across_{t}({t}* square, const {t}* from, int64_t stride, int runs, int lanes) {{\n'
            "  st::across(square, from, stride, runs, lanes);\n}\n"
        )
        text += (
            f'extern "C" void turned_{t}(const {t}* ST_RESTRICT in, {t}* ST_RESTRICT out) {{\n'
            "  using index = int32_t;\n  ST_TEAM(1)\n"
            f"  ST_EACH_SQUARE(37, 50) {{\n    ST_ACROSS({t}, x, &in[j * 40 + run], 40)\n"
            "    ST_PLACES_OF_SQUARE { out[run * 50 + j] = ST_ACROSS_AT(x); }\n  }\n}\n"
        )
    path: Path = tmp_path_factory.mktemp("squares") / "squares.so"
    path.write_bytes(toolchain.shared_object("squares", text, (*flags, "-Wall", "-Werror", f"-I{RUNTIME}")))
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize("t", TYPES)
def test_each_number_is_at_its_place(library: ctypes.CDLL, t: str) -> None:
    """Two blocks exchanged, a line of another square, a number past the end of a square that is cut off."""
    numbers = np.arange(16 * 21).astype(TYPES[t]).reshape(16, 21)
    for runs, lanes in ((16, 16), (16, 5), (3, 16), (1, 1)):
        square = np.full((16, 16), 999, TYPES[t])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (square, numbers)]
        getattr(library, f"across_{t}")(*pointers, ctypes.c_int64(21), ctypes.c_int(runs), ctypes.c_int(lanes))
        want = np.full((16, 16), 999, TYPES[t])
        want[:runs, :lanes] = numbers[:lanes, :runs].T
        np.testing.assert_array_equal(square, want)


@pytest.mark.parametrize("t", TYPES)
def test_places_that_no_square_divides(library: ctypes.CDLL, t: str) -> None:
    """The last squares each way."""
    numbers = np.arange(50 * 40).astype(TYPES[t]).reshape(50, 40)
    turned = np.zeros((37, 50), TYPES[t])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (numbers, turned)]
    getattr(library, f"turned_{t}")(*pointers)
    np.testing.assert_array_equal(turned, numbers[:, :37].T)
