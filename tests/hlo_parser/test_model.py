"""What the objects say: values of attributes, literals, shapes, stack frames; immutability and hashing."""

from __future__ import annotations

import copy
import pathlib
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from jaxlib import _hlo

import hlo_parser
from hlo_parser import ArrayShape, FrozenDict, HloParseError, Instruction, Literal, TupleShape, Verbatim
from hlo_parser.dtypes import ELEMENT_TYPES
from tests.hlo_parser.tables import corners


def instruction(text: str) -> Instruction:
    """The last instruction of an entry computation."""
    return hlo_parser.parse("HloModule m\nENTRY e {\nx = f32[2] parameter(0)\n" + text + "\n}").entry.instructions[-1]


def attributes(text: str) -> FrozenDict[str, object]:
    return instruction(f"y = f32[2] novel(x), {text}").attributes


def test_values_of_attributes() -> None:
    assert attributes("dimensions={0,1}")["dimensions"] == (0, 1)
    assert attributes("slice={[0:5:2],[1:3]}")["slice"] == ((0, 5, 2), (1, 3, 1))
    assert attributes("padding=0_1_0x2_-3")["padding"] == ((0, 1, 0), (2, -3, 0))
    assert attributes("epsilon=0.1")["epsilon"] == 0.1
    assert attributes("is_stable=true")["is_stable"] is True
    assert attributes("direction=LT")["direction"] == "LT"
    assert attributes('custom_call_target="a\\"b"')["custom_call_target"] == 'a"b'
    assert attributes("source_target_pairs={{0,1},{2,3}}")["source_target_pairs"] == ((0, 1), (2, 3))
    assert attributes("operand_layout_constraints={f32[2]{0}}")["operand_layout_constraints"][
        0
    ].layout.minor_to_major == (0,)
    assert attributes("fft_length={8}")["fft_length"] == (8,)


def test_what_only_newer_releases_write() -> None:
    """jax 0.11 writes compare's `type=TOTALORDER` as `order=TOTAL`, and has an opcode more."""
    assert attributes("direction=LT, order=TOTAL")["order"] == "TOTAL"
    reduction = corners()["devices-all_reduce"].replace("all-reduce", "collective-reduce")
    text = str(hlo_parser.parse(reduction.replace("to_apply", "has_dynamic_root=false, to_apply")))
    assert "has_dynamic_root=false" in text
    module = hlo_parser.parse(text)
    assert str(module) == text and hlo_parser.unknown(module) == [] and hlo_parser.verify(module) == []


def test_window() -> None:
    window = attributes("window={size=3x4 stride=2x1 pad=0_1x2_3 lhs_dilate=1x2 rhs_dilate=3x1 rhs_reversal=0x1}")[
        "window"
    ]
    assert window.dims[0] == hlo_parser.WindowDim(3, stride=2, pad_low=0, pad_high=1, window_dilation=3)
    assert window.dims[1] == hlo_parser.WindowDim(4, pad_low=2, pad_high=3, base_dilation=2, reversed=True)


def test_dim_labels() -> None:
    labels = attributes("dim_labels=b01f_01io->0b1f")["dim_labels"]
    assert (labels.input_batch, labels.input_feature, labels.input_spatial) == (0, 3, (1, 2))
    assert (labels.kernel_input_feature, labels.kernel_output_feature, labels.kernel_spatial) == (2, 3, (0, 1))
    assert (labels.output_batch, labels.output_feature, labels.output_spatial) == (1, 3, (0, 2))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{}", ()),
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=4], device_ids=(3,1,0,2) {'a'}", ((3, 1, 0, 2),)),
        ("mesh['a'=8] {'a':(1)2}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=8] {'a':(4)2,'a':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ],
)
def test_replica_groups(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    found = attributes(f"replica_groups={text}")["replica_groups"]
    assert found.groups == groups
    assert str(found) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mesh['a'=2] {'b'}", "no axis 'b'"),
        ("mesh['a'=8] {'a':(3)2}", "no factor"),
        ("mesh['a'=4], device_ids=(0,1) {'a'}", "2 device numbers for a mesh of 4"),
        ("mesh['a'=4], device_ids=([2,2]T(0,0)) {'a'}", "no permutation"),
    ],
)
def test_wrong_replica_groups(text: str, message: str) -> None:
    with pytest.raises(hlo_parser.HloParseError, match=message):
        attributes(f"replica_groups={text}")


def test_sharding() -> None:
    tiled = attributes("sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}")["sharding"]
    assert tiled.kind == "tiled" and tiled.tile_dims == (2, 1, 2) and tiled.replicate_last
    assert tiled.devices.to_numpy().tolist() == [[[0, 1]], [[2, 3]]]
    pair = attributes("sharding={{replicated}, {maximal device=3}}")["sharding"]
    assert [e.kind for e in pair.elements] == ["replicated", "maximal"] and pair.elements[1].devices == (3,)
    assert attributes("sharding={mesh['a'=2], [{'a'}]}")["sharding"] == Verbatim("{mesh['a'=2], [{'a'}]}")


def test_backend_config_of_json() -> None:
    config = attributes('backend_config={"a":[1,{"b":null}],"c":1.5}')["backend_config"]
    assert config["a"][1]["b"] is None and config["c"] == 1.5 and config.notation == "json"
    assert attributes('backend_config="{\\"a\\": 1}"')["backend_config"]["a"] == 1
    assert attributes('backend_config="words"')["backend_config"] == "words"


def test_backend_config_of_mlir() -> None:
    text = (
        '{name = "k", grid = array<i64: 1, 2>, n = 3 : i32, u = 255 : ui8, x = 2.5 : f32, big = 4, on = true, flag, '
        'nan = 0x7FC00000 : f32, l = [1 : i8, "s"], d = {e = 1.0 : f64}, '
        "t = dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>, q = #other.thing<a, (b) -> c>}"
    )
    config = attributes(f"backend_config={text}")["backend_config"]
    assert config.notation == "mlir" and config.text == text
    assert config["name"] == "k" and config["on"] is True and config["flag"] is True
    assert config["n"] == np.int32(3) and config["n"].dtype == np.int32 and config["u"].dtype == np.uint8
    assert config["x"].dtype == np.float32 and config["big"].dtype == np.int64 and np.isnan(config["nan"])
    assert config["grid"].to_numpy().tolist() == [1, 2] and config["grid"].element_type == "i64"
    assert config["l"] == (np.int8(1), "s") and config["d"]["e"] == 1.0
    assert config["t"].to_numpy().tolist() == [[1, 2], [3, 4]]
    assert config["q"] == Verbatim("#other.thing<a, (b) -> c>")


def test_unknown_things_are_kept_and_flagged() -> None:
    text = (
        "HloModule m, novel_header={a, {b}}\n\n"
        "ENTRY %e (x: f32[2]) -> f32[2] {\n  %x = f32[2] parameter(0)\n"
        '  ROOT %y = f32[2] frobnicate(%x), dimension={0}, how={x=[1,2], "},"}, metadata={op_name="n" op_nam="m"}\n'
        "}\n\n"
    )
    module = hlo_parser.parse(text)
    assert str(module) == text
    assert [str(u) for u in hlo_parser.unknown(module)] == [
        "the module: unknown attribute 'novel_header'",
        "%y, %e: unknown opcode 'frobnicate'",
        "%y, %e: unknown attribute 'dimension'; did you mean 'dimensions'?",
        "%y, %e: unknown attribute 'how'",
        "%y, %e: unknown key 'op_nam' of the metadata; did you mean 'op_name'?",
    ]
    assert module.entry.root.attributes["how"] == Verbatim('{x=[1,2], "},"}')
    assert hlo_parser.verify(module) == []


def test_attributes_without_a_notation_must_be_verbatim() -> None:
    with pytest.raises(TypeError, match="give its value as Verbatim"):
        str(Instruction("x", "custom-call", ArrayShape("f32", ()), attributes=FrozenDict({"novel": 3})))


def test_stack_frames() -> None:
    module = hlo_parser.parse(corners()["module-stack_frames"])
    assert module.stack_frame(2) == [("c.py", 7, "<lambda>"), ('a "b".py', 3, "f")]
    assert module.stack_frame(1) == [('a "b".py', 3, "f")]
    assert module.stack_frame(0) == module.stack_frame(3) == []


def test_shapes() -> None:
    shape = instruction("y = s4[8,128]{1,0:T(8,128)(*,1)E(4)S(1)} novel(x)").shape
    assert isinstance(shape, ArrayShape) and shape.layout is not None
    assert (
        shape.layout.tiles == ((8, 128), (None, 1))
        and shape.layout.element_bits == 4
        and shape.layout.memory_space == 1
    )
    assert shape.bytes == 512 and shape.size == 1024
    bounded = instruction("y = f32[<=8,?,3] novel(x)").shape
    assert isinstance(bounded, ArrayShape) and bounded.dims == (8, -1, 3) and bounded.dynamic == (True, True, False)
    assert str(bounded) == "f32[<=8,?,3]"


def test_literals() -> None:
    def value(shape: str, text: str) -> np.ndarray:
        literal = instruction(f"y = {shape} constant({text})").literal
        assert literal is not None
        return literal.to_numpy()

    assert value("pred[2]", "{1, false}").tolist() == [True, False]
    assert value("bf16[]", "1.5").dtype == ml_dtypes.bfloat16
    assert value("s4[2]", "{-8, 7}").dtype == ml_dtypes.int4
    assert value("c64[2]", "{(1, 2), (inf, -3)}").tolist() == [1 + 2j, complex(np.inf, -3)]
    assert value("f32[2,2]{0,1}", "{ { 1, 2 }, { 3, 4 } }").tolist() == [[1, 2], [3, 4]]
    assert value("f32[]", "nan(0x12)").view(np.uint32) == 0x7F800012
    assert np.isnan(value("c64[]", "(nan(0x12), 1)").real)
    assert value("c64[1]", "{(nan(0x12), -nan)}").view(np.uint32).tolist() == [0x7F800012, 0xFFC00000]
    assert value("f32[]", "-nan").view(np.uint32) == 0xFFC00000
    assert np.signbit(value("f32[]", "-0"))
    with pytest.raises(ValueError, match="read-only"):
        value("f32[2]", "{1, 2}")[0] = 3


def test_missing_literals() -> None:
    literal = instruction("y = f32[1000] constant({...})").literal
    assert literal is not None and literal.missing
    with pytest.raises(ValueError, match="print_large_constants"):
        literal.to_numpy()
    assert str(instruction("y = f32[1000] constant({...})")).endswith("constant({...})")


def test_literals_are_equal_by_bits() -> None:
    shape = ArrayShape("f32", (1,))
    nan, zero, minus = (Literal.of(np.array([v], np.float32), shape) for v in (np.nan, 0.0, -0.0))
    assert nan == Literal.of(np.array([np.nan], np.float32), shape) and hash(nan) == hash(copy.deepcopy(nan))
    assert zero != minus


@pytest.mark.parametrize("name", [t.name for t in ELEMENT_TYPES.values() if t.kind == "float" and t.bits <= 16])
def test_every_value_of_a_narrow_float_survives(name: str) -> None:
    kind = ELEMENT_TYPES[name]
    bits = np.arange(1 << kind.bits, dtype=f"u{kind.numpy.itemsize}")
    shape = ArrayShape(name, (len(bits),))
    printed = str(Instruction("c", "constant", shape, literal=Literal.of(bits.view(kind.numpy), shape)))
    literal = instruction(printed).literal
    assert literal is not None
    assert np.array_equal(literal.to_numpy().view(bits.dtype), bits)


@pytest.mark.parametrize("name", ["f32", "f64", "c64", "s64", "u64", "s8", "u4", "pred"])
def test_random_bits_survive(name: str) -> None:
    kind = ELEMENT_TYPES[name]
    random = np.random.default_rng(0)
    if kind.kind in ("float", "complex"):
        array = random.integers(0, 256, 3 * 5000 * kind.numpy.itemsize, np.uint8).view(kind.numpy).reshape(3, -1)
    else:
        low, high = (
            (0, 1)
            if name == "pred"
            else (0, 15)
            if name == "u4"
            else (np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max)
        )
        array = random.integers(
            low, high, (3, 5000), endpoint=True, dtype=np.uint64 if name == "u64" else np.int64
        ).astype(kind.numpy)
    shape = ArrayShape(name, array.shape)
    literal = Literal.of(array, shape)
    read = instruction(str(Instruction("c", "constant", shape, literal=literal))).literal
    assert read == literal


def test_everything_is_immutable_and_hashable() -> None:
    for name, text in corners().items():
        module = hlo_parser.parse(text)
        assert hash(module) == hash(hlo_parser.parse(text)), name
        assert pickle.loads(pickle.dumps(module)) == module, name
        assert copy.deepcopy(module) == module, name
    with pytest.raises(AttributeError):
        module.name = "other"  # type: ignore[misc]
    for change in (lambda d: d.update(a=1), lambda d: d.pop("a"), lambda d: d.__setitem__("a", 1), lambda d: d.clear()):
        with pytest.raises(TypeError, match="immutable"):
            change(FrozenDict(a=2))


def test_lookup() -> None:
    module = hlo_parser.parse(corners()["call-while"])
    assert module.computation("body").root.name == "t"
    assert module.entry.name == "main" and "s" in module.entry and "t" not in module.entry
    assert [p.parameter_number for p in module.computation("body").parameters] == [0]
    assert isinstance(module.entry["w"].shape, TupleShape) and len(module.entry) == 2
    with pytest.raises(KeyError):
        module.computation("nothing")


def test_names_differ_only_in_case_or_dots() -> None:
    text = "HloModule m\nENTRY e { a = f32[] parameter(0)\n a.1 = f32[] negate(a)\n ROOT A = f32[] negate(a.1) }"
    assert [i.operands for i in hlo_parser.parse(text).entry] == [(), ("a",), ("a.1",)]


def test_strings_with_any_bytes_survive() -> None:
    for value in ("é\n\t\"\\'", "\udcff\x00\x7f", "数", "{,}"):
        written = str(
            Instruction("y", "custom-call", ArrayShape("f32", ()), attributes=FrozenDict(custom_call_target=value))
        )
        assert written.isascii() and instruction(written).attributes["custom_call_target"] == value


def test_needs_neither_jax_nor_the_rest_of_the_package() -> None:
    code = "import sys, hlo_parser; print({m.split('.')[0] for m in sys.modules} & {'jax', 'jaxlib', 'jax_stitch'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_opcode_of_xla_is_known() -> None:
    """Catches an opcode of the installed XLA that the parser does not know. XLA lists them by the names of its C++
    constants, most of which are the spelling of HLO in camel case.
    """
    others = {"clz", "cos", "exp", "expm1", "log1p", "optimization-barrier", "population-count", "sin", "top-k"}
    constants = [name[1:] for name in dir(_hlo.HloOpcode) if name.startswith("k")]
    names = {re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in constants}
    assert not names - hlo_parser.OPCODES - others


def test_the_example_of_the_readme() -> None:
    readme = (pathlib.Path(hlo_parser.__file__).parent / "README.md").read_text()
    exec(readme.split("```python\n")[1].split("```")[0], {})


def test_parse_error_is_a_value_error() -> None:
    assert issubclass(HloParseError, ValueError)
