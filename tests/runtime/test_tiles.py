"""The host's tiles of a row's places: each place once, in its lane, and the same result in whatever piece it lies."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS
from tests.runtime.conftest import parameters

RANGES = [
    *[(0, n, 16) for n in (1, 3, 4, 7, 8, 12, 15, 16, 17, 31, 32, 36, 47, 63, 64)],
    *[(3, 5, 16), (3, 16, 16), (16, 32, 16), (36, 64, 16), (5, 64, 16), (7, 61, 16), (33, 47, 16)],
    *[(0, 64, 1), (9, 50, 1), (0, 37, 4), (2, 63, 64), (0, 64, 64), (0, 27, 8)],
]
"""The first place, the end, and lanes."""
PLACES, ROW = 64, 3
WHOLE = RANGES.index((0, 64, 16))


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = '#include "stitch.h"\n'
    for k in sorted({WHOLE, *(given["number"] for given in parameters(request))}):
        first, end, lanes = RANGES[k]
        text += (
            f'extern "C" void tiles_{k}(const float* ST_RESTRICT in, float* ST_RESTRICT out, int* ST_RESTRICT lanes,\n'
            "                           int* ST_RESTRICT turns) {\n"
            f"  st::tiles<int, {first}, {end}, {lanes}>({ROW}, [](const int j) ST_INLINE {{ return 1000 * j; }})\n"
            "      << [&](const int j, const int p, const int t) ST_INLINE {\n"
            "        out[j] += st::exp(in[j]) + st::log(in[j]);\n"
            "        lanes[j] = p + t;\n"
            "      } << [&]() ST_INLINE { ++*turns; };\n"
            f"  st::places<int, {first}, {end}, {lanes}>({ROW}, [](const int j) ST_INLINE {{ return 1000 * j; }})\n"
            f"      << [&](const int j, const int p, const int t) ST_INLINE {{ lanes[{PLACES} + j] = p + t; }};\n}}\n"
        )
    path: Path = tmp_path_factory.mktemp("tiles") / "tiles.so"
    path.write_bytes(toolchain.shared_object("tiles", text, (*FLAGS, "-Wall", "-Werror", f"-I{RUNTIME}")))
    return ctypes.CDLL(str(path))


def cases() -> list[Any]:
    """What a compiler is soon done with: short and long, begun and ended inside a tile, of each number of lanes."""
    quick = {(0, 1, 16), (0, 17, 16), (5, 64, 16), (33, 47, 16), (9, 50, 1), (0, 37, 4), (2, 63, 64), (0, 27, 8)}
    return [
        pytest.param(k, id=f"{r[0]}-{r[1]}-by-{r[2]}", marks=[] if r in quick else [pytest.mark.slow])
        for k, r in enumerate(RANGES)
    ]


@pytest.mark.parametrize("number", cases())
def test_tiles(library: ctypes.CDLL, number: int) -> None:
    first, end, lanes = RANGES[number]
    x = np.random.default_rng(number).uniform(0.1, 80, PLACES).astype(np.float32)

    def run(k: int) -> tuple[np.ndarray, np.ndarray, int]:
        out, at = np.zeros(PLACES, np.float32), np.full(2 * PLACES, -1, np.int32)
        turns = np.zeros(1, np.int32)
        getattr(library, f"tiles_{k}")(*(ctypes.c_void_p(a.ctypes.data) for a in (x, out, at, turns)))
        return out, at, int(turns[0])

    out, at, turns = run(number)
    inside = slice(first, end)
    places = np.arange(PLACES)
    for found in (at[:PLACES], at[PLACES:]):  # With what is done after each tile, and without.
        np.testing.assert_array_equal(found[inside], (1000 * places + ROW * lanes + places % lanes)[inside])
        assert (np.delete(found, np.r_[inside]) == -1).all(), "a place outside was touched"
    assert turns == len({j // lanes for j in range(first, end)})
    # To the last bit what whole vectors give (added once to zero: no place is done twice).
    np.testing.assert_array_equal(out[inside], run(WHOLE)[0][inside])
