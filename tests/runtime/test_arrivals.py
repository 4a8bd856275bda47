"""Where the blocks of a launch meet (``backend/runtime/arrivals.h``), with a thread of this machine for each block.

The word that they are counted in may hold anything at first. A counter that has to be cleared, that another launch
shares, or that overflows, hangs here or lets a block go on before the others have come.
"""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.load import load

MARK, MARK_BITS = 0x53747FA1C3E5, 47
"""As in the header."""

HEADER = (RUNTIME / "arrivals.h").read_text().replace("#pragma once", "")
SHIM = Path(__file__).parent / "arrivals_shim.cc"


@pytest.fixture(scope="module")
def meet() -> ctypes.CDLL:
    return built(HEADER)


def built(header: str) -> ctypes.CDLL:
    text = SHIM.read_text().replace('#include "arrivals.h"', header)
    library = load(toolchain.shared_object("arrivals", text, ("-std=c++17", "-O2", "-pthread")))
    library.launches.argtypes = [ctypes.c_int] * 4 + [ctypes.c_void_p]
    library.turns.argtypes = [ctypes.c_int, ctypes.c_int]
    return library


def launch(library: ctypes.CDLL, blocks: int, barriers: int, last: bool, words: np.ndarray) -> int:
    """Faults among launches at the same time, one for each word: blocks that went on too early, or a last that was
    not; and a word that is left with the mark."""
    found = library.launches(len(words), blocks, barriers, last, words.ctypes.data)
    return int(found) + sum(int(word) % (1 << MARK_BITS) == MARK for word in words)


def garbage(seed: int) -> np.ndarray:
    """Whatever may lie in memory; also what differs from the mark in one bit, and the mark's bits elsewhere."""
    rng = random.Random(seed)
    near = [MARK ^ 1 << rng.randrange(MARK_BITS), (rng.getrandbits(17) << MARK_BITS) | (MARK ^ 1), MARK << 1, MARK >> 1]
    words = [0, (1 << 64) - 1, rng.getrandbits(64), rng.choice(near)]
    return np.array([word % (1 << 64) for word in words], np.uint64)


@pytest.mark.parametrize("last", [False, True], ids=["all go on", "the last goes on"])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_whatever_is_in_memory(meet: ctypes.CDLL, blocks: int, last: bool) -> None:
    for seed in range(6):
        words = garbage(seed)
        for _ in range(2):  # The second launch finds what the first has left.
            assert launch(meet, blocks, seed % 4 + (not last), last, words) == 0


def test_many_barriers(meet: ctypes.CDLL) -> None:
    """As in a loop in blocks that meet at each step: the bit turns over again and again, and nothing adds up."""
    assert launch(meet, 3, 500, False, garbage(1)[2:3]) == 0


def test_as_many_blocks_as_can_be_counted(meet: ctypes.CDLL) -> None:
    """Arithmetic alone, without threads: the bit turns over with the last arrival, in whatever order they come."""
    for blocks in (1, 2, 4736, 65_535, 65_536):
        for first in {0, 1 % blocks, blocks - 1}:
            assert meet.turns(blocks, first) == blocks, (blocks, first)


def test_the_mark_is_no_float() -> None:
    """What most memory holds; and it is the header's mark that the tests above try."""
    assert f"{MARK:#x}ull" in HEADER and f"kMarkBits = {MARK_BITS}" in HEADER
    assert np.isnan(np.array([MARK & 0xFFFFFFFF], np.uint32).view(np.float32)[0]) and not MARK & 0x400000


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(before & kMarked) != kMark", "false"),
        ("    before = atomicAdd(arrivals, share());\n  }", "  }"),
        ("+ 1 - gridDim.x", "- gridDim.x"),
        ("if (turned(before, before + share())) atomicExch(arrivals, 0ull);", ""),
    ],
    ids=["memory is taken as it is", "lost arrivals", "one arrival too few", "the mark stays"],
)
def test_these_tests_see_what_is_wrong(right: str, wrong: str) -> None:
    assert HEADER.count(right) == 1
    library = built(HEADER.replace(right, wrong))
    assert any(launch(library, 5, 2, False, garbage(seed)) for seed in range(8))
