"""Constants of millions of elements: one value throughout stays one, and the rest is read and written in bulk."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import hlo_parser
from hlo_parser import ELEMENT_TYPES, ArrayShape, Literal
from hlo_parser.write_literal import write_literal
from jax_stitch.util.jax_names import hlo

MODULE = "HloModule m\n\nENTRY e {{\n  ROOT c = {} constant({})\n}}\n"
TYPES = [t.name for t in ELEMENT_TYPES.values() if t.name != "f8e8m0fnu"]  # which has no 0
REAL = [name for name in TYPES if name[0] != "c"]
SHAPES = ["3", "64", "8,9", "2,3,4,5", "100,1", "1,1,100,1", "0", "5,0", "1"]


def literal(shape: str, text: str) -> Literal:
    found = hlo_parser.parse(MODULE.format(shape, text)).entry.root.literal
    assert found is not None
    return found


def as_xla(text: str) -> str:
    """Return the constant as XLA reads and prints it."""
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(hlo.hlo_module_from_text(text).to_string(options)).split("constant(")[1]


@pytest.mark.parametrize("shape", [f"{name}[4096,4096]" for name in REAL] + ["(f32[4096,4096], (pred[16777216]))"])
def test_many_zeros_stay_one(shape: str) -> None:
    """Catches zeros that are held, written or compared one by one: gigabytes for a module of a hundred bytes."""
    tracemalloc.start()
    module = hlo_parser.parse(MODULE.format(shape, "(0, (false))" if shape[0] == "(" else "0"))
    text = str(module)
    again = hlo_parser.parse(text)
    assert again == module and hash(again) == hash(module)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20  # modules that are imported now
    tracemalloc.stop()
    assert len(text) < 300


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("name", TYPES)
def test_xla_reads_the_same(name: str, dims: str) -> None:
    """Catches a short form that XLA reads as another array, or not at all, and braces or numbering gone wrong."""
    kind, shape = ELEMENT_TYPES[name], ArrayShape(name, tuple(map(int, dims.split(","))))
    for values in (np.zeros(shape.size), np.ones(shape.size), np.arange(shape.size) % 2):
        made = Literal.of(values.astype(kind.numpy).reshape(shape.dims), shape)
        text = MODULE.format(f"{name}[{dims}]", write_literal(made))
        printed = as_xla(text)
        assert literal(f"{name}[{dims}]", write_literal(made)) == made
        assert literal(f"{name}[{dims}]", printed.split(")\n")[0]) == made
    assert np.array_equal(made.to_numpy().reshape(-1), values.astype(kind.numpy))


def test_braces_around_one_value_are_that_value() -> None:
    """Catches a value in braces held many times over, and one that is joined of two by leaving out a space."""
    rows = ", ".join(["{ " + ", ".join(["-1.5"] * 1000) + " }"] * 1000)
    found = literal("bf16[1000,1000]{0,1}", f"{{ {rows} }}")
    assert not any(found.to_numpy().strides) and found.to_numpy()[7, 9] == -1.5
    assert write_literal(found) == f"{{ {rows} }}"
    with pytest.raises(hlo_parser.HloParseError):
        literal("s32[2]", "{1 1, 1 1}")
    assert literal("f32[3]", "{-0.0,-0.0,-0.0}") != literal("f32[3]", "0")
    assert literal("f32[100]", "-0.0") == Literal.of(np.array([-0.0] + [0] * 99, np.float32), ArrayShape("f32", (100,)))
    assert write_literal(literal("f32[100]", "{" + ",".join(["-0.0"] * 100) + "}")).count("-0.0") == 100


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f8e4m3fn", "s32", "s4", "u64", "pred", "c64"])
def test_different_values_survive_in_bulk(name: str) -> None:
    """Catches values that change places or bits where each is written once."""
    numbers = np.random.default_rng(0).normal(size=(300, 100)).astype(np.float32) * 3
    with np.errstate(invalid="ignore"):
        values = numbers.astype(ELEMENT_TYPES[name].numpy)
    made = Literal.of(values, ArrayShape(name, values.shape))
    assert literal(f"{name}[300,100]", write_literal(made)) == made


def test_elided_values_stay_elided() -> None:
    """Catches dots that become zeros."""
    assert literal("f32[4096,4096]", "{...}").missing
    assert write_literal(literal("(f32[4096,4096], s32[2])", "({...}, {1, 2})")) == "( {...}, {1, 2} )"
