"""Operations that change nothing, or whose value is known: what is dropped, and that values stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_parser import ELEMENT_TYPES
from tests.graph.helpers import assert_equal, both, ops, values

TWO_SIDES = "%a = f32[8]{0} abs(%n)\n %b = f32[8]{0} abs(%x)\n ROOT %s = f32[8]{0} add(%a, %b)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%n = f32[8]{0} negate(%x)\n ROOT %m = f32[8]{0} negate(%n)", []),
        ("%n = f32[8]{0} negate(%x)\n ROOT %m = f32[8]{0} cosine(%n)", ["cosine"]),
        ("%n = f32[8]{0} negate(%x)\n ROOT %m = f32[8]{0} sine(%n)", ["negate", "sine"]),
        (f"%n = f32[8]{{0}} negate(%x)\n {TWO_SIDES}", ["abs", "add"]),
    ],
)
def test_negations_that_change_nothing(body: str, expected: list[str]) -> None:
    """Catches signs lost of odd functions, and of zeros."""
    flat, built = both("%x = f32[8]{0} parameter(0)\n" + body)
    assert ops(built) == expected
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.5, 1e-40, 3.0], np.float32)
    assert_equal(flat, built, x)
    signs = (np.copysign(1, values(g, x)[0][~np.isnan(x)]) for g in (flat, built))
    np.testing.assert_array_equal(*signs)


def test_a_sign_of_unsigned_numbers_stays() -> None:
    """Catches ``abs(-x)`` taken for ``abs(x)`` of numbers whose negation wraps around."""
    flat, built = both("%x = u8[3]{0} parameter(0)\n %n = u8[3]{0} negate(%x)\n ROOT %a = u8[3]{0} abs(%n)")
    assert ops(built) == ["negate", "abs"]
    assert_equal(flat, built, np.array([0, 1, 200], np.uint8))


@pytest.mark.parametrize("dtype", ["s8", "u8", "s32", "u64"])
def test_integers_over_themselves(dtype: str) -> None:
    """Catches what other zeros have, all bits set: LLVM makes 1 of ``x / x`` and 0 of its remainder whatever ``x``."""
    x = np.array([0, 1, 7, 100], ELEMENT_TYPES[dtype].numpy)
    for op, value in (("divide", 1), ("remainder", 0)):
        built = both(f"%x = {dtype}[4]{{0}} parameter(0)\n ROOT %a = {dtype}[4]{{0}} {op}(%x, %x)")[1]
        assert op not in ops(built)
        np.testing.assert_array_equal(values(built, x)[0], np.full(4, value, x.dtype))
    built = both("%x = f32[4]{0} parameter(0)\n ROOT %a = f32[4]{0} divide(%x, %x)")[1]
    assert ops(built) == ["divide"]
