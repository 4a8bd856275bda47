"""Random modules that are HLO survive the round trip; random damage gives a module or HloParseError, soon."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hlo_parser
from hlo_parser import (
    ArrayShape,
    Computation,
    FrozenDict,
    HloParseError,
    Instruction,
    Layout,
    Literal,
    Module,
    Shape,
    TokenShape,
    TupleShape,
    Verbatim,
    Window,
    WindowDim,
)
from hlo_parser.dtypes import ELEMENT_TYPES
from tests.hlo_parser.tables import corners
from tests.some import some

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
ints = st.integers(-(2**63), 2**63 - 1)
int_tuples = st.lists(st.integers(-9, 99), max_size=4).map(tuple)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout | None:
    if draw(st.booleans()) or rank == 0:
        return None
    tiles = draw(st.lists(st.lists(st.none() | st.integers(1, 128), min_size=1, max_size=2).map(tuple), max_size=2))
    order = tuple(draw(st.permutations(range(rank))))
    return Layout(order, tuple(tiles), element_bits=draw(st.sampled_from([0, 4])), memory_space=draw(st.integers(0, 5)))


@st.composite
def array_shapes(draw: st.DrawFn, dynamic: bool = True) -> ArrayShape:
    dtype = draw(st.sampled_from(sorted(ELEMENT_TYPES)))
    dims = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    flags = tuple(draw(st.booleans()) for _ in dims) if dynamic else ()
    return ArrayShape(dtype, dims, draw(layouts(len(dims))), flags if any(flags) else ())


shapes: st.SearchStrategy[Shape] = st.recursive(
    array_shapes() | st.just(TokenShape()),
    lambda inner: st.lists(inner, max_size=3).map(lambda e: TupleShape(tuple(e))),
    max_leaves=4,
)


@st.composite
def literals(draw: st.DrawFn, shape: ArrayShape) -> Literal:
    kind = ELEMENT_TYPES[shape.dtype]
    seed = draw(st.integers(0, 2**32))
    raw = np.random.default_rng(seed).integers(0, 256, shape.size * kind.numpy.itemsize, np.uint8)
    if kind.kind == "pred":
        return Literal.of(raw % 2 == 1, shape)
    if kind.kind == "int" and kind.bits < 8:
        low = -(1 << kind.bits - 1) if kind.name[0] == "s" else 0
        return Literal.of(((raw % (1 << kind.bits)).astype(np.int16) + low).astype(kind.numpy), shape)
    return Literal.of((raw % 16 if kind.bits < 8 else raw).view(kind.numpy), shape)


windows = st.lists(
    st.builds(
        WindowDim,
        st.integers(0, 9),
        st.integers(1, 3),
        st.integers(-2, 3),
        st.integers(-2, 3),
        st.integers(1, 2),
        st.integers(1, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(lambda dims: Window(tuple(dims)))

attribute_values: dict[str, st.SearchStrategy[object]] = {
    "dimensions": int_tuples,
    "channel_id": ints,
    "is_stable": st.booleans(),
    "direction": st.sampled_from(["LT", "EQ"]),
    "custom_call_target": texts,
    "slice": st.lists(st.tuples(*[st.integers(0, 9)] * 2, st.integers(1, 3)), max_size=3).map(tuple),
    "padding": st.lists(st.tuples(*[st.integers(-3, 3)] * 2, st.integers(0, 2)), min_size=1, max_size=3).map(tuple),
    "window": windows,
    "source_target_pairs": st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3).map(tuple),
    "operand_layout_constraints": st.lists(array_shapes(), max_size=2).map(tuple),
    "epsilon": st.floats(allow_nan=False),
    "backend_config": texts.filter(lambda t: not t.startswith("{")),
    "frontend_attributes": st.dictionaries(names, texts, max_size=2).map(FrozenDict),
    "an_unknown_one": st.sampled_from([Verbatim("3"), Verbatim('{a="}",b}'), Verbatim("[1,(2)]")]),
}
metadata = st.fixed_dictionaries(
    {},
    optional={"op_name": texts, "source_file": texts, "source_line": st.integers(0, 2**31), "profile_type": int_tuples},
)


@st.composite
def computations(draw: st.DrawFn, name: str, callees: list[str], is_entry: bool) -> Computation:
    instructions: list[Instruction] = []
    for index in range(draw(st.integers(1, 6))):
        own = f"{draw(names)}.{index}"
        before = [i.name for i in instructions]
        kind = draw(st.sampled_from(["parameter", "constant", "other"]))
        shape: Shape = draw(array_shapes(dynamic=False)) if kind == "constant" else draw(shapes)
        if kind == "parameter":
            number = sum(i.opcode == "parameter" for i in instructions)
            i = Instruction(own, "parameter", shape, parameter_number=number)
        elif kind == "constant":
            assert isinstance(shape, ArrayShape)
            i = Instruction(own, "constant", shape, literal=draw(literals(shape)))
        else:
            keys = draw(st.lists(st.sampled_from(sorted(attribute_values)), unique=True, max_size=4))
            # As printed, the config comes last.
            keys = sorted(keys, key=lambda k: k == "backend_config")
            attributes = {key: draw(attribute_values[key]) for key in keys}
            if callees and draw(st.booleans()):
                attributes = {"to_apply": draw(st.sampled_from(callees)), **attributes}
            operands = tuple(draw(st.lists(st.sampled_from(before), max_size=8))) if before else ()
            i = Instruction(
                own,
                draw(st.sampled_from(["novel-op", "other-op", "add" if len(operands) == 2 else "all-of-them"])),
                shape,
                operands,
                FrozenDict(attributes),
            )
        control = tuple(draw(st.lists(st.sampled_from(before), max_size=2, unique=True))) if before else ()
        instructions.append(
            Instruction(
                i.name, i.opcode, i.shape, i.operands, i.attributes, i.literal, i.parameter_number,
                FrozenDict(draw(metadata)), False, control,
            )
        )  # fmt: skip
    root = draw(st.integers(0, len(instructions) - 1))
    return Computation(name, tuple(replace(i, is_root=n == root) for n, i in enumerate(instructions)), is_entry)


@st.composite
def modules(draw: st.DrawFn) -> Module:
    found: list[Computation] = []
    count = draw(st.integers(1, 3))
    for n in range(count):
        found.append(draw(computations(f"c{n}", [c.name for c in found], n == count - 1)))
    return Module(draw(names), tuple(found), FrozenDict({"is_scheduled": True} if draw(st.booleans()) else {}))


def check_round_trip(module: Module) -> None:
    text = str(module)
    assert hlo_parser.parse(text) == module
    assert str(hlo_parser.parse(text)) == text


@settings(max_examples=some(20, of=150), deadline=None, suppress_health_check=list(HealthCheck))
@given(modules())
def test_random_modules(module: Module) -> None:
    check_round_trip(module)


@pytest.mark.slow
@settings(max_examples=4_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(modules())
def test_many_random_modules(module: Module) -> None:
    check_round_trip(module)


CORNERS = list(corners().values())
PIECES = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    '"',
    "%",
    "ROOT ",
    "->",
    "/*",
    "*/",
    "//",
    "\n",
    "\0",
    "é",
    "<=",
    "nan(0x",
    "1e999",
    "-",
    "...",
]
PIECES += [
    "f32[",
    "pred[]",
    "metadata={",
    "to_apply=",
    "constant(",
    "backend_config={",
    "sharding={",
    "dimensions={",
    "\\",
    "9" * 30,
]


def damage(text: str, choose: random.Random) -> str:
    """The text with one to four random edits: pieces cut, doubled, moved, swapped for others or for junk."""
    for _ in range(choose.randint(1, 4)):
        at, size = choose.randrange(len(text) + 1), choose.choice([1, 1, 1, 2, 5, 20, 100])
        cut = text[at : at + size]
        other = choose.choice(CORNERS)
        start = choose.randrange(len(other))
        replacement = choose.choice(
            [
                "",
                cut + cut,
                choose.choice(PIECES),
                chr(choose.randrange(256)),
                other[start : start + size],
                cut[::-1],
                cut.swapcase(),
            ]
        )
        text = text[:at] + replacement + text[at + size :]
    return text


def check_damage(seed: int) -> bool:
    """Whether the damaged text was still a module."""
    choose = random.Random(seed)
    text = damage(choose.choice(CORNERS), choose)
    start = time.process_time()
    try:
        module = hlo_parser.parse(text)
    except HloParseError as error:
        assert str(error)
        return False
    finally:
        assert time.process_time() - start < 5, text
    assert hlo_parser.parse(str(module)) == module, text
    hlo_parser.verify(module)
    hlo_parser.unknown(module)
    return True


def test_damaged_modules() -> None:
    survived = sum(check_damage(seed) for seed in range(4000))
    assert 100 < survived < 3900  # the damage is neither always fatal nor never


@pytest.mark.slow
def test_many_damaged_modules() -> None:
    for seed in range(4000, 104_000):
        check_damage(seed)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_junk(data: bytes) -> None:
    for text in (
        data.decode("latin-1"),
        data.decode("utf-8", "surrogateescape"),
        "HloModule m\n" + data.decode("latin-1"),
    ):
        with pytest.raises(HloParseError):
            hlo_parser.parse(text)
