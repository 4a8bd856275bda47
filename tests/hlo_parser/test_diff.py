"""Differences between modules, up to names."""

from __future__ import annotations

import hlo_parser
from hlo_parser import diff

BASE = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %e (x: f32[2,3], y: f32[2,3]) -> f32[2] {
  %x = f32[2,3] parameter(0)
  %y = f32[2,3] parameter(1)
  %p = f32[2,3] multiply(%x, %y)
  %n = f32[2,3] negate(%p)
  %z = f32[] constant(0)
  ROOT %r = f32[2] reduce(%n, %z), dimensions={1}, to_apply=%add, metadata={op_name="r"}
}
"""


def differences(changed: str, **options: bool) -> list[hlo_parser.Difference]:
    assert changed != BASE
    return diff(hlo_parser.parse(BASE), hlo_parser.parse(changed), **options)


def test_names_order_and_metadata_do_not_count() -> None:
    renamed = BASE.replace("%n", "%other").replace("%add", "%plus").replace("%p ", "%q ").replace("(%p)", "(%q)")
    lines = renamed.replace('op_name="r"', 'op_name="s"').split("\n")
    zero = next(n for n, line in enumerate(lines) if "constant" in line)
    lines.insert(zero - 4, lines.pop(zero))
    assert differences("\n".join(lines)) == []


def test_the_same_module_has_none() -> None:
    assert diff(hlo_parser.parse(BASE), hlo_parser.parse(BASE)) == []


def test_an_opcode_in_the_middle() -> None:
    """What reads an exchanged instruction is not reported: it computes from something else, but is as it was."""
    (found,) = differences(BASE.replace("negate(%p)", "abs(%p)"))
    assert found.details == ("opcode: negate -> abs",)


def test_an_instruction_in_between() -> None:
    changed = BASE.replace("%n = f32[2,3] negate(%p)", "%a = f32[2,3] exponential(%p)\n  %n = f32[2,3] negate(%a)")
    found = differences(changed)
    assert {d.kind for d in found} == {"added", "changed"}
    assert [d.right for d in found if d.kind == "added"] == ["%a = f32[2,3] exponential(%p)"]
    assert [d.details for d in found if d.kind == "changed"] == [("operands: p -> a",)]


def test_an_attribute() -> None:
    (found,) = differences(BASE.replace("f32[2] reduce", "f32[3] reduce").replace("-> f32[2]", "-> f32[3]").replace(
        "dimensions={1}", "dimensions={0}"
    ))  # fmt: skip
    assert found.kind == "changed"
    assert found.details == ("shape: f32[2] -> f32[3]", "dimensions: {1} -> {0}")
    assert str(found).startswith("~ %e: ROOT %r = f32[2] reduce")


def test_a_constant() -> None:
    found = differences(BASE.replace("constant(0)", "constant(1)"))
    assert [d.details for d in found] == [("another value",)]


def test_a_called_computation() -> None:
    """Reported where it is, once, not at its callers."""
    found = differences(BASE.replace("add(%a, %b)", "maximum(%a, %b)"))
    assert {d.computation for d in found} == {"add"}


def test_swapped_operands() -> None:
    (found,) = differences(BASE.replace("multiply(%x, %y)", "multiply(%y, %x)"))
    assert found.details == ("operands: x, y -> y, x",)


def test_layouts() -> None:
    changed = BASE.replace("%n = f32[2,3]", "%n = f32[2,3]{0,1}")
    assert differences(changed, layouts=False) == []
    (found,) = differences(changed)
    assert found.details == ("shape: f32[2,3] -> f32[2,3]{0,1}",)


def test_an_added_instruction() -> None:
    changed = BASE.replace("  ROOT", "  %unused = f32[] negate(%z)\n  ROOT", 2).replace(
        "  %unused = f32[] negate(%z)\n  ROOT %c", "  ROOT %c"
    )
    (found,) = differences(changed)
    assert str(found) == "+ %e: %unused = f32[] negate(%z)"


def test_the_header() -> None:
    (found,) = differences(BASE.replace("HloModule m", "HloModule m, is_scheduled=true"))
    assert str(found) == "~ the module\n  is_scheduled: nothing -> true"


def test_long_chains() -> None:
    """Linear time, and no recursion."""
    body = "".join(f"  %n{i} = f32[] negate(%n{i - 1})\n" for i in range(1, 20_000))
    text = f"HloModule m\nENTRY %e {{\n  %n0 = f32[] parameter(0)\n{body}}}\n"
    changed = text.replace("%n10000 = f32[] negate", "%n10000 = f32[] abs")
    found = diff(hlo_parser.parse(text), hlo_parser.parse(changed))
    assert 0 < len(found) < 10
