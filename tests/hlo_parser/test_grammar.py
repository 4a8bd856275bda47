"""The TextMate grammar for editors: complete, and right on lines of all sorts.

TextMate's regular expressions are Oniguruma's; those in the grammar are also Python's, by which they are tried here.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

import hlo_parser
from hlo_parser import ELEMENT_TYPES, OPCODES

FOLDER = pathlib.Path(hlo_parser.__file__).parent / "editors" / "vscode"
GRAMMAR: dict[str, Any] = json.loads((FOLDER / "hlo.tmLanguage.json").read_text())
RULES = GRAMMAR["repository"]


def expressions(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("match", "begin", "end", "firstLineMatch"):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def test_expressions_are_well_formed() -> None:
    found = list(expressions(GRAMMAR))
    assert len(found) > 15
    for expression in found:
        re.compile(expression)


def test_every_rule_is_there_and_used() -> None:
    assert {p["include"].removeprefix("#") for p in GRAMMAR["patterns"]} == RULES.keys()


def test_the_extension_names_its_files() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    for part in package["contributes"]["grammars"]:
        assert (FOLDER / part["path"]).is_file() and part["scopeName"] == GRAMMAR["scopeName"]
    for part in package["contributes"]["languages"]:
        assert json.loads((FOLDER / part["configuration"]).read_text())["brackets"]


@pytest.mark.parametrize("opcode", sorted(OPCODES))
def test_opcodes_are_coloured(opcode: str) -> None:
    """A new opcode in the library is one in the grammar."""
    match = re.search(RULES["opcode"]["match"], f"  %x = f32[2]{{0}} {opcode}(%y)")
    assert match is not None and match[0] == opcode


@pytest.mark.parametrize("dtype", sorted(ELEMENT_TYPES))
def test_types_are_coloured(dtype: str) -> None:
    match = re.search(RULES["shape"]["match"], f"  %x = {dtype}[2,<=3]{{1,0:T(8,128)}} add(%y, %z)")
    assert match is not None and match.groups() == (dtype, "[2,<=3]", "{1,0:T(8,128)}")


LINES = {
    "ENTRY %main (x: f32[2]) -> f32[2] {": ("computation", ("ENTRY", "%main")),
    "%fused_computation.3 (p: f32[]) -> (f32[], s32[]) {": ("computation", (None, "%fused_computation.3")),
    "body {": ("computation", (None, "body")),
    "  ROOT %add.1 = f32[2]{0} add(%x, %y)": ("instruction", ("ROOT", "%add.1")),
    "  x = f32[2] parameter(0)": ("instruction", (None, "x")),
    "  %r = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add": ("called", ("to_apply", "=", "%add")),
}


@pytest.mark.parametrize("line", LINES)
def test_lines(line: str) -> None:
    rule, groups = LINES[line]
    match = re.search(RULES[rule]["match"], line)
    assert match is not None and match.groups() == groups


def test_a_result_before_a_body_has_no_layout() -> None:
    match = re.search(RULES["shape"]["match"], "e () -> f32[2] {")
    assert match is not None and match[3] is None
