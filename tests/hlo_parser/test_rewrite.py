"""Analyses and rewrites, checked against definitions simple enough to trust."""

from __future__ import annotations

import random

import pytest

import hlo_parser
from hlo_parser import ArrayShape, Computation, Instruction, analysis, rewrite
from tests.hlo_parser.oracle import canonical
from tests.hlo_parser.tables import corners

F32 = ArrayShape("f32", ())


def random_computation(seed: int, size: int = 30) -> Computation:
    """Instructions with random operands among those before; the order of the text is the order of creation."""
    choose = random.Random(seed)
    instructions = [Instruction(f"p{n}", "parameter", F32, parameter_number=n) for n in range(3)]
    for n in range(size):
        operands = tuple(choose.choice(instructions).name for _ in range(choose.randint(1, 3)))
        control = (choose.choice(instructions).name,) if choose.random() < 0.1 else ()
        instructions.append(Instruction(f"i{n}", "tuple", F32, operands, control_predecessors=control))
    return Computation("c", tuple(instructions))


def paths_between(c: Computation, source: str, target: str, avoid: str | None = None) -> bool:
    """Whether a path leads from source to target that does not pass `avoid`."""
    left, seen = [target], set()
    while left:
        name = left.pop()
        if name == avoid or name in seen:
            continue
        if name == source:
            return True
        seen.add(name)
        left += [*c[name].operands, *c[name].control_predecessors]
    return False


def test_users() -> None:
    c = random_computation(0)
    for name, found in analysis.users(c).items():
        assert list(found) == [i.name for i in c if name in i.operands]


@pytest.mark.parametrize("seed", range(5))
def test_topological_order(seed: int) -> None:
    c = random_computation(seed)
    shuffled = list(c.instructions)
    random.Random(seed).shuffle(shuffled)
    order = [i.name for i in analysis.topological_order(Computation("c", tuple(shuffled)))]
    assert sorted(order) == sorted(i.name for i in c)
    for i in c:
        assert all(order.index(name) < order.index(i.name) for name in analysis.sources(i))
    assert analysis.topological_order(c) == c.instructions  # text that is in order stays as it is


def test_topological_order_refuses_a_cycle() -> None:
    a, b = Instruction("a", "negate", F32, ("b",)), Instruction("b", "negate", F32, ("a",))
    with pytest.raises(ValueError, match="depends on itself"):
        analysis.topological_order(Computation("c", (a, b)))


@pytest.mark.parametrize("seed", range(5))
def test_reachability(seed: int) -> None:
    c = random_computation(seed)
    found = analysis.reachability(c)
    for a in c:
        for b in c:
            assert found.reaches(a.name, b.name) == paths_between(c, a.name, b.name)
    assert analysis.ancestors(c, ["i9"]) == {i.name for i in c if found.reaches(i.name, "i9")}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("backwards", [False, True])
def test_dominators(seed: int, backwards: bool) -> None:
    c = random_computation(seed, 20)
    names = [i.name for i in c]
    if backwards:
        following = {n: [i.name for i in c if n in analysis.sources(i)] for n in names}
        found = analysis.post_dominators(c)
        ends = [n for n in names if not following[n]]
        passes = lambda n, by: not any(paths_between(c, n, e, by) for e in ends)  # noqa: E731
    else:
        found = analysis.dominators(c)
        starts = [i.name for i in c if not analysis.sources(i)]
        passes = lambda n, by: not any(paths_between(c, s, n, by) for s in starts)  # noqa: E731
    for name in names:
        all_dominators = {other for other in names if other != name and passes(name, other)}
        chain: list[str] = []
        at = found[name]
        while at is not None:
            chain.append(at)
            at = found[at]
        assert set(chain) == all_dominators and len(chain) == len(all_dominators)


FUSED = """HloModule m

%inner (p: f32[2]) -> f32[2] {
  %p = f32[2] parameter(0)
  ROOT %y = f32[2] negate(%p)
}

%fused (p: f32[2], q: f32[2]) -> (f32[2], f32[2]) {
  %p = f32[2] parameter(0)
  %q = f32[2] parameter(1)
  %x = f32[2] add(%p, %q)
  %y = f32[2] call(%x), to_apply=%inner
  ROOT %t = (f32[2], f32[2]) tuple(%y, %p)
}

ENTRY %e (x: f32[2], y: f32[2]) -> (f32[2], f32[2]) {
  %x = f32[2] parameter(0)
  %y = f32[2] parameter(1)
  ROOT %f = (f32[2], f32[2]) fusion(%y, %x), kind=kLoop, calls=%fused
}

"""


def test_inline() -> None:
    module = hlo_parser.inline(hlo_parser.parse(FUSED), "e", "f")
    assert hlo_parser.verify(module) == []
    assert [str(i) for i in module.entry][2:] == [
        "%x.1 = f32[2] add(%y, %x)",
        "%y.1 = f32[2] call(%x.1), to_apply=%inner",
        "ROOT %t = (f32[2], f32[2]) tuple(%y.1, %y)",
    ]
    flat = rewrite.remove_unused_computations(hlo_parser.inline(module, "e", "y.1"))
    assert [c.name for c in flat.computations] == ["e"] and hlo_parser.verify(flat) == []
    assert str(flat.entry["y.2"]) == "%y.2 = f32[2] negate(%x.1)"
    canonical(str(flat))  # XLA reads it
    with pytest.raises(ValueError, match="only a fusion or a call"):
        hlo_parser.inline(flat, "e", "t")


def test_inline_a_computation_that_returns_its_parameter() -> None:
    entry = "ENTRY e { x = f32[] parameter(0)\n ROOT y = f32[] call(x), to_apply=f }"
    text = "HloModule m\nf { ROOT p = f32[] parameter(0) }\n" + entry
    module = hlo_parser.inline(hlo_parser.parse(text), "e", "y")
    assert [str(i) for i in module.entry] == ["ROOT %x = f32[] parameter(0)"]


def test_inline_keeps_control_dependencies() -> None:
    text = (
        "HloModule m\nf { p = f32[] parameter(0)\n ROOT n = f32[] negate(p) }\n"
        "ENTRY e { x = f32[] parameter(0)\n a = f32[] abs(x)\n"
        " y = f32[] call(x), control-predecessors={a}, to_apply=f\n"
        " ROOT z = f32[] exponential(x), control-predecessors={y} }"
    )
    module = hlo_parser.inline(hlo_parser.parse(text), "e", "y")
    assert module.entry["n"].control_predecessors == ("a",) and module.entry["z"].control_predecessors == ("n",)


def check_inlining(name: str, text: str) -> None:
    module = hlo_parser.parse(text)
    for c in module.computations:
        for i in c:
            if i.opcode in ("fusion", "call"):
                module = hlo_parser.inline(module, c.name, i.name)
    module = rewrite.remove_unused_computations(module)
    assert hlo_parser.verify(module) == [], name
    assert not any(i.opcode == "fusion" for i in module.entry)
    canonical(str(module))


@pytest.mark.xdist_group("hlo_programs")
def test_inlining_every_fusion_of_a_program_leaves_it_well_formed(host_modules: dict[str, str]) -> None:
    for name in ("layer_norm_gradient.cpu", "lstm.cpu", "sorts.cpu", "adam.cpu"):
        check_inlining(name, host_modules[name])


@pytest.mark.slow
@pytest.mark.xdist_group("hlo_programs")
def test_inlining_leaves_a_training_step_well_formed(all_modules: dict[str, str]) -> None:
    check_inlining("training_step.cpu", all_modules["training_step.cpu"])


def test_replace_uses() -> None:
    c = hlo_parser.parse(corners()["elementwise-select"]).entry
    changed = hlo_parser.replace_uses(c, "y", "x")
    assert changed["p"].operands == ("x", "x") and changed["s"].operands == ("p", "x", "x")
    as_root = hlo_parser.replace_uses(c, "s", "x")
    assert as_root.root.name == "x" and sum(i.is_root for i in as_root) == 1
    with pytest.raises(KeyError):
        hlo_parser.replace_uses(c, "y", "nothing")


def test_replace_instruction() -> None:
    c = hlo_parser.parse(corners()["elementwise-select"]).entry
    shape = c["p"].shape
    new = [Instruction("q", "constant", shape), Instruction("r", "not", shape, ("q",))]
    changed = hlo_parser.replace_instruction(c, "p", new)
    assert [i.name for i in changed] == ["x", "y", "q", "r", "s"] and changed["s"].operands == ("r", "x", "y")
    assert hlo_parser.replace_instruction(c, "s", [Instruction("u", "copy", c["x"].shape, ("x",))]).root.name == "u"


def test_remove_dead() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  unused = f32[] parameter(1)
  dead = f32[] negate(x)
  c = f32[] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true
  ROOT y = f32[] abs(x)
}
"""
    assert [i.name for i in rewrite.remove_dead(hlo_parser.parse(text).entry)] == ["x", "unused", "c", "y"]


def test_clone() -> None:
    module, name = hlo_parser.clone(hlo_parser.parse(FUSED), "fused")
    assert name == "fused.clone" and module.computation(name).instructions == module.computation("fused").instructions
    again, name = hlo_parser.clone(module, "fused")
    assert name == "fused.clone.1" and hlo_parser.verify(again) == []
    entry, name = hlo_parser.clone(module, "e")
    assert entry.entry.name == "e" and not entry.computation(name).is_entry


def test_rename_follows_computations() -> None:
    i = hlo_parser.parse(corners()["call-conditional_index"]).entry["c"]
    renamed = rewrite.rename(i, {"c": "d", "x": "z"}, {"abs2": "abs3"})
    assert (renamed.name, renamed.operands) == ("d", ("i", "z", "z", "z"))
    assert rewrite.called(renamed) == ("negate2", "abs3", "negate2")


def test_map_instructions_shares_what_it_keeps() -> None:
    module = hlo_parser.parse(FUSED)
    same = rewrite.map_instructions(module, lambda c, i: i)
    assert same == module and same.entry["f"] is module.entry["f"]
