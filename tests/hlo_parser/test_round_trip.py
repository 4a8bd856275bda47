"""Parse and print against XLA's own parser and printer."""

from __future__ import annotations

import pytest

import hlo_parser
from tests.hlo_parser.oracle import canonical, exact
from tests.hlo_parser.tables import NEWER, corners

CORNERS = corners()


def check_module_of_xla(name: str, text: str) -> None:
    module = hlo_parser.parse(text)
    printed = str(module)
    assert printed == text, f"{name}: not printed as XLA prints it"
    assert canonical(printed) == canonical(text), name
    again = hlo_parser.parse(printed)
    assert again == module and hash(again) == hash(module), name
    assert hlo_parser.verify(module) == [], name
    assert hlo_parser.unknown(module) == [], name


@pytest.mark.xdist_group("hlo_programs")
def test_modules_for_the_host(host_modules: dict[str, str]) -> None:
    assert len(host_modules) >= 60
    for name, text in host_modules.items():
        check_module_of_xla(name, text)


@pytest.mark.xdist_group("hlo_programs")
def test_modules_for_a_gpu(some_gpu_modules: dict[str, str]) -> None:
    assert sum(name.endswith(".gpu") for name in some_gpu_modules) == 4
    for name, text in some_gpu_modules.items():
        check_module_of_xla(name, text)


@pytest.mark.slow
@pytest.mark.xdist_group("hlo_programs")
def test_all_modules(all_modules: dict[str, str]) -> None:
    assert sum(name.endswith(".gpu") for name in all_modules) >= 40
    for name, text in all_modules.items():
        check_module_of_xla(name, text)


@pytest.mark.xdist_group("hlo_programs")
def test_canonical_prints_can_be_read(host_modules: dict[str, str]) -> None:
    """XLA's canonical form writes computations inside instructions, and operands with their shapes."""
    for name in ("lstm.cpu", "sorts.lowered", "branches.cpu", "layer_norm_gradient.cpu"):
        text = canonical(host_modules[name])
        assert canonical(str(hlo_parser.parse(text))) == canonical(text), name


def test_table_is_large_enough() -> None:
    assert len(CORNERS) >= 150


@pytest.mark.parametrize("name", CORNERS)
def test_corner(name: str) -> None:
    text = CORNERS[name]
    module = hlo_parser.parse(text)
    printed = str(module)
    assert canonical(printed) == canonical(text)
    assert hlo_parser.parse(printed) == module
    assert str(hlo_parser.parse(printed)) == printed
    assert hlo_parser.verify(module) == []
    assert hlo_parser.unknown(module) == []


@pytest.mark.parametrize("name", CORNERS)
def test_corner_as_xla_prints_it(name: str) -> None:
    """XLA's print of the corner, with its layouts and order of attributes, comes back unchanged."""
    text = exact(CORNERS[name])
    printed = str(hlo_parser.parse(text))
    assert printed.replace("-0.0", "-0") == text  # to its own parser XLA's -0 is an integer: ours writes a point


@pytest.mark.parametrize("name", NEWER)
def test_what_only_a_newer_xla_has(name: str) -> None:
    """Catches an opcode that is known where the XLA installed has it alone: plans of other versions' dumps need it."""
    text = corners(newer=True)[name]
    module = hlo_parser.parse(text)
    assert hlo_parser.parse(str(module)) == module and str(module).count("(%x") == text.count("(x)") == 1
    assert hlo_parser.verify(module) == [] and hlo_parser.unknown(module) == []


@pytest.mark.parametrize("end", ["\r\n", "\n\n", " \t\n", " // comment\n", "\n/* comment\n * */"])
def test_line_ends_do_not_matter(end: str) -> None:
    for name, text in CORNERS.items():
        if name.startswith("lexical") or '"' in text:  # strings and comments of their own
            continue
        assert hlo_parser.parse(text.replace("\n", end)) == hlo_parser.parse(text), name
