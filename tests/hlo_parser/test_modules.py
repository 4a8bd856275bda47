"""Small modules of our own against XLA's parser: what it reads and would not print, and what it refuses."""

from __future__ import annotations

import functools

import jaxlib
import pytest

import hlo_parser
from hlo_parser import HloParseError
from tests.hlo_parser.judge import Verdict, judge
from tests.hlo_parser.tables import loose, refused

LOOSE = loose()
REFUSED = refused()
TAKEN_SINCE_011 = {"an asynchronous end of nothing", "an asynchronous update of another shape"}
"""What jaxlib 0.11's parser takes and 0.10's does not. Ours refuses it with both."""


@functools.cache
def verdicts() -> dict[str, tuple[Verdict, Verdict]]:
    """XLA's on each loose module, and on what is printed of it; one process for all."""
    printed = [str(hlo_parser.parse(text)) for text in LOOSE.values()]
    both = judge("parse", [*LOOSE.values(), *printed])
    return dict(zip(LOOSE, zip(both[: len(LOOSE)], both[len(LOOSE) :], strict=True), strict=True))


def test_tables_are_large_enough() -> None:
    assert len(LOOSE) >= 300 and len(REFUSED) >= 180


@pytest.mark.parametrize("name", LOOSE)
def test_is_read_as_xla_reads_it(name: str) -> None:
    original, printed = verdicts()[name]
    assert original.accepted, f"XLA refuses it: {original.answer}"
    assert printed.accepted, f"XLA refuses what we print: {printed.answer}"
    assert printed.answer == original.answer


@pytest.mark.parametrize("name", LOOSE)
def test_is_printed_as_xla_prints(name: str) -> None:
    """What we print is read back as the same module, also by a parser that wants nothing but XLA's print."""
    module = hlo_parser.parse(LOOSE[name])
    printed = str(module)
    assert hlo_parser.parse(printed, strict=True) == module
    assert str(hlo_parser.parse(printed)) == printed
    assert hlo_parser.unknown(module) == []


@pytest.mark.parametrize("name", [name for name in LOOSE if name.startswith("dialects")])
def test_has_no_fault(name: str) -> None:
    """Catches false alarms of the verifier: groups, dilations and empty dimensions of windows, collectives' forms."""
    assert hlo_parser.verify(hlo_parser.parse(LOOSE[name])) == []


def test_strict_refuses_what_xla_never_prints() -> None:
    """Forms by file: nested operands and missing shapes and headers are no print of XLA's."""
    for name, text in LOOSE.items():
        if name.startswith(("inferred", "nested", "whole: no header", "whole: a single")) and " parameter" not in name:
            with pytest.raises(HloParseError):
                hlo_parser.parse(text, strict=True)


@functools.cache
def refusals() -> dict[str, Verdict]:
    return dict(zip(REFUSED, judge("parse", REFUSED.values()), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_as_by_xla(name: str) -> None:
    text = REFUSED[name]
    taken = name in TAKEN_SINCE_011 and tuple(map(int, jaxlib.__version__.split(".")[:2])) >= (0, 11)
    assert refusals()[name].accepted == taken, f"XLA {'refuses' if taken else 'takes'} it"
    with pytest.raises(HloParseError) as caught:
        hlo_parser.parse(text)
    error = caught.value
    assert 1 <= error.line <= text.count("\n") + 1 and error.column >= 1
    place, line, caret, *_ = str(error).split("\n")
    assert place == f"{error.line}:{error.column}: {error.message}"
    assert caret.strip() == "^" and caret.index("^") <= len(line)
