"""Patterns and what they find."""

from __future__ import annotations

import time

import pytest

import hlo_parser
from hlo_parser import HloParseError, find, read_pattern

MODULE = hlo_parser.parse("""HloModule m

%add { %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b) }

ENTRY %e {
  %x = f32[8,16] parameter(0)
  %y = f32[8,16] parameter(1)
  %i = s32[8,16] parameter(2)
  %zero = f32[] constant(0)
  %square = f32[8,16] multiply(%x, %x), metadata={op_name="jit(f)/norm/square"}
  %product = f32[8,16] multiply(%x, %y)
  %sum1 = f32[8] reduce(%square, %zero), dimensions={1}, to_apply=%add
  %sum0 = f32[16] reduce(%product, %zero), dimensions={0}, to_apply=%add
  %negative = s32[8,16] negate(%i)
  %gathered = f32[16,16] all-gather(%x), dimensions={0}
  ROOT %t = (f32[8], f32[16], s32[8,16], f32[16,16]) tuple(%sum1, %sum0, %negative, %gathered)
}
""")

FOUND = {
    "reduce": ["sum1", "sum0"],
    "reduce(multiply(*, $x), *)": ["sum1", "sum0"],
    "multiply($x, $x)": ["square"],
    "multiply($x, $y)": ["square", "product"],
    "reduce(multiply($x, $x), *)": ["sum1"],
    "reduce(*, constant)": ["sum1", "sum0"],
    "reduce(constant, *)": [],
    "reduce(*)": [],
    "tuple(reduce, ...)": ["t"],
    "tuple(...)": ["t"],
    "tuple()": [],
    "all-*": ["gathered"],
    "negate | all-gather": ["negative", "gathered"],
    "tuple(*, *, negate | abs, *)": ["t"],
    "f32 multiply": ["square", "product"],
    "s32[8,*] negate": ["negative"],
    "f32[*] reduce": ["sum1", "sum0"],
    "f32[8] reduce": ["sum1"],
    "[*,*] *": ["x", "y", "i", "square", "product", "negative", "gathered"],
    "s32 *": ["i", "negative"],
    "reduce{dimensions={1}}": ["sum1"],
    "reduce(*, *){dimensions={0}, to_apply=%add}": ["sum0"],
    '*{op_name="*norm*"}': ["square"],
    "reduce($p=multiply(*, *), *)": ["sum1", "sum0"],
    "while": [],
}


@pytest.mark.parametrize("pattern", FOUND)
def test_found(pattern: str) -> None:
    assert [m.instruction.name for m in find(MODULE, pattern)] == FOUND[pattern]


def test_names_stand_for_instructions() -> None:
    first, second = find(MODULE, "reduce($p=multiply($x, $y), *)")
    assert first.bindings == {"$p": "square", "$x": "x", "$y": "x"}
    assert second.bindings == {"$p": "product", "$x": "x", "$y": "y"}
    assert str(second) == (
        "%e: %sum0 = f32[16] reduce(%product, %zero), dimensions={0}, to_apply=%add  ($p=%product, $x=%x, $y=%y)"
    )
    assert find(MODULE, "add")[0].computation == "add"


def test_names_are_tried_in_every_alternative() -> None:
    """The first alternative that fits an operand need not be the one that fits the whole."""
    assert [m.instruction.name for m in find(MODULE, "multiply($x | $y, $x)")] == ["square", "product"]


WRONG = {
    "": "expected a pattern",
    "reduce(": "expected a pattern",
    "reduce(*": "expected ',' or ')'",
    "reduce(*,)": "expected a pattern",
    "reduce(..., *)": "expected ')' after '...'",
    "reduce)": "expected '|' or the end",
    "Reduce": "expected a pattern",
    "$x=": "expected what $x should match",
    "f32[8]": "expected an opcode after the shape",
    "reduce{dimensions}": "expected key=value",
    "reduce{dimensions={1}": "expected '}' after",
    "add | ": "expected a pattern",
    "add(" * 100: "nested deeper",
}


@pytest.mark.parametrize("pattern", WRONG)
def test_wrong_patterns(pattern: str) -> None:
    with pytest.raises(HloParseError) as caught:
        read_pattern(pattern)
    assert WRONG[pattern] in caught.value.message
    assert str(caught.value).split("\n")[2].strip() == "^"


def test_many_instructions() -> None:
    body = "".join(f"  %n{i} = f32[] add(%n{i - 1}, %n{i - 1})\n" for i in range(1, 5_000))
    module = hlo_parser.parse(f"HloModule m\nENTRY %e {{\n  %n0 = f32[] parameter(0)\n{body}}}\n")
    start = time.process_time()
    assert len(find(module, "add(add(add($x, $x), *), *)")) == 4_997
    assert time.process_time() - start < 5
