"""Texts that are not HLO: what the error says, where it points, and that there is one in bounded time and memory."""

from __future__ import annotations

import pickle
import re
import time
import tracemalloc

import pytest

import hlo_parser
from hlo_parser import HloParseError
from tests.hlo_parser.tables import Wrong, wrong

WRONG = wrong()


def test_table_is_large_enough() -> None:
    assert len(WRONG) >= 60


@pytest.mark.parametrize("case", WRONG, ids=[w.message for w in WRONG])
def test_message_and_place(case: Wrong) -> None:
    with pytest.raises(HloParseError) as caught:
        hlo_parser.parse(case.text, strict=True)
    error = caught.value
    expected = re.sub(r" #\d+$", "", case.message)
    assert error.message + (f"; {error.suggestion}" if error.suggestion else "") == expected
    assert (error.line, error.column) == (case.line, case.column)


def test_report_shows_the_line_with_a_caret() -> None:
    text = "HloModule m\nENTRY e {\n  value = f32[] parameter(0)\n  ROOT y = f32[] negate(valeu)\n}\n"
    with pytest.raises(HloParseError) as caught:
        hlo_parser.parse(text)
    assert str(caught.value) == (
        "4:25: no instruction 'valeu' before this one in this computation\n"
        "    ROOT y = f32[] negate(valeu)\n"
        "                          ^\n"
        "  did you mean 'value'?"
    )


def test_an_error_can_be_sent_to_another_process() -> None:
    with pytest.raises(HloParseError) as caught:
        hlo_parser.parse("HloModul m")
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value)
    assert (error.message, error.line, error.column, error.suggestion) == (caught.value.message, 1, 1, "HloModule")


def test_caret_stays_in_place_after_tabs_and_in_long_lines() -> None:
    text = 'HloModule m\nENTRY e {\n\tx = f32[] parameter(0), metadata={op_name="' + "a" * 500 + '" 7}\n}\n'
    with pytest.raises(HloParseError) as caught:
        hlo_parser.parse(text)
    report = str(caught.value).split("\n")
    assert "\t" not in report[1] and len(report[1]) < 140
    assert report[1][report[2].index("^")] == "7"


MODULE = "HloModule m\nENTRY e {{\n  ROOT x = {}\n}}\n"
HOSTILE = {
    "nested tuple shapes": MODULE.format("(" * 10_000 + "f32[]" + ")" * 10_000 + " parameter(0)"),
    "open tuple shapes": MODULE.format("(" * 1_000_000),
    "nested braces": MODULE.format("f32[] parameter(0), novel=" + "{" * 10_000 + "}" * 9_999),
    "nested json": MODULE.format('f32[] parameter(0), backend_config={"a":' + '{"a":' * 10_000 + "1" + "}" * 10_000),
    "nested json lists": MODULE.format(
        'f32[] parameter(0), backend_config={"a":' + "[" * 100_000 + "]" * 100_000 + "} x"
    ),
    "nested mlir": MODULE.format("f32[] parameter(0), backend_config={a = " + "[" * 10_000 + "]" * 10_000 + "} x"),
    "nested shardings": MODULE.format("f32[] parameter(0), sharding=" + "{" * 10_000 + "}" * 10_000),
    "nested computations": MODULE.format("f32[] call(), to_apply={ ROOT x = f32[] call(), to_apply=" * 10_000),
    "nested literal": MODULE.format("f32[2] constant(" + "{" * 10_000 + "}" * 10_000 + ")"),
    "rank 10,000": MODULE.format(f"f32[{','.join(['1'] * 10_000)}] constant({'{' * 10_000}1{'}' * 10_000})"),
    "claims a large literal": MODULE.format("f32[1000000,1000000] constant({ {1}, {2} })"),
    "claims an empty literal": MODULE.format("f32[1000000000000,0] constant({ {} })"),
    "endless comment": "HloModule m /*" + "*" * 1_000_000,
    "endless string": MODULE.format('f32[] parameter(0), metadata={op_name="' + "a\\" * 1_000_000),
    "many spaces": "HloModule" + " \t" * 1_000_000,
    "long name": "HloModule " + "a" * 2_000_000 + "!",
    "long number": MODULE.format("s32[] constant(" + "1" * 100_000 + ")"),
    "long unknown operand": MODULE.format("f32[] negate(" + "a" * 1_000_000 + ")"),
    "many unknown operands": MODULE.format("f32[] add(" + "a, " * 300_000 + ")"),
    "nested operands": MODULE.format("f32[] " + "negate(" * 100_000),
    "claims a large splat": MODULE.format("f32[1000000,1000000] constant(0)"),
    "a wrong value behind many": MODULE.format("f32[200000] constant({" + "1 " * 199_999 + "1e99})"),
    "a string over many lines": MODULE.format('f32[] parameter(0), metadata={op_name="' + "a\n" * 1_000_000),
    "slashes in a shape": MODULE.format("f32[" + "/" * 200_000 + "] parameter(0)"),
    "null bytes": "HloModule m\0\nENTRY e { \0 }",
    "binary": bytes(range(256)).decode("latin-1") * 1000,
    "unicode": "HloModule ⅷ\nENTRY é { ROOT ¼ = f32[٣] parameter(0) }",
    "lone surrogate": "HloModule \udcff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_an_error_soon(name: str) -> None:
    text = HOSTILE[name]
    start = time.process_time()
    with pytest.raises(HloParseError):
        hlo_parser.parse(text)
    assert time.process_time() - start < 5


def test_every_truncation_is_an_error_but_between_computations() -> None:
    for end in range(len(CLASSIC)):
        text = CLASSIC[:end]
        if text.rstrip().endswith("\n}"):
            assert hlo_parser.parse(text).computations
        else:
            with pytest.raises(HloParseError):
                hlo_parser.parse(text)


CLASSIC = """HloModule m, entry_computation_layout={(f32[2]{0})->(f32[2]{0})}

FileNames
1 "a.py"

%f (a: f32[2]) -> f32[2] {
  ROOT %a = f32[2]{0} parameter(0), metadata={op_name="a"}
}

ENTRY %e (x: f32[2]) -> (f32[2]) {
  %x = f32[2]{0} parameter(0), sharding={devices=[2]<=[2]}
  %c = f32[2]{0} constant({1, 2})
  %y = f32[2]{0} fusion(%x), kind=kLoop, calls=%f, backend_config={"a":[1]}
  ROOT %t = (f32[2]{0}) tuple(%y)
}
"""


@pytest.mark.slow
def test_a_line_of_100_megabytes() -> None:
    text = MODULE.format('f32[] parameter(0), metadata={op_name="' + "a" * 100_000_000 + '" 7}')
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(HloParseError):
        hlo_parser.parse(text)
    assert time.process_time() - start < 30
    assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    tracemalloc.stop()
