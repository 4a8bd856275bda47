"""Every elementwise operation in stitched kernels at the values where it is special, beside XLA's on the same device.

XLA's threads read subnormals as zero, and libm and our own polynomials were not written for that: a power with the
exponent 1e-45 was 1 also of NaN, an angle of two subnormals 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from jax import lax

from hlo_parser import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from jax_stitch import devices
from jax_stitch.emit.cpp import scalar
from jax_stitch.ir.operations import TABLE
from tests.fusion import forced
from tests.replay import xla
from tests.special import judge
from tests.special.values import FLOATS, INTEGERS, TYPES, pairs, special

FLOAT_COMPARE = {f"compare {d}": f"compare(%x, %y), direction={d}" for d in scalar.COMPARE}
TOTAL = {f"compare {d} in total order": f"compare(%x, %y), direction={d}, type=TOTALORDER" for d in scalar.COMPARE}
INTEGER_UNARY = ("abs", "count-leading-zeros", "negate", "not", "popcnt", "sign")
INTEGER_BINARY = (
    *("add", "and", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder", "shift-left"),
    *("shift-right-arithmetic", "shift-right-logical", "subtract", "xor"),
)
PRED_BINARY = ("add", "and", "maximum", "minimum", "multiply", "or", "xor")
TO_BASE_2 = {"exp2(%x)": "power(%two, %x)", "log2(%x)": "multiply(%log, %factor)"}
"""What XLA is asked in place of operations that it reads and prints, and that no client of it can have compiled."""
BITS = {"bf16": "u16", "f16": "u16", "f32": "u32", "f64": "u64"}


@dataclass(frozen=True)
class Operation:
    """A line of HLO on %x, and %y where it takes two, with the type of its result."""

    name: str
    line: str
    result: str


def unary_operations(dtype: str) -> list[Operation]:
    converts = [Operation(f"convert to {t}", "convert(%x)", t) for t in TYPES if t != dtype]
    if dtype == "pred":
        return [*converts, Operation("not", "not(%x)", dtype)]
    names = judge.UNARY if dtype in FLOATS else INTEGER_UNARY
    unsigned = ("abs", "sign") if dtype[0] == "u" else ()
    found = [Operation(n, f"{n}(%x)", "pred" if n == "is-finite" else dtype) for n in names if n not in unsigned]
    if dtype in FLOATS:
        found.append(Operation("bits", "bitcast-convert(%x)", BITS[dtype]))
        found += [
            Operation(f"reduce-precision {e} {m}", f"reduce-precision(%x), exponent_bits={e}, mantissa_bits={m}", dtype)
            for e, m in ((5, 10), (8, 7), (4, 3))
        ]
    return found + converts


def binary_operations(dtype: str) -> list[Operation]:
    names = {"pred": PRED_BINARY}.get(dtype, tuple(judge.BINARY) if dtype in FLOATS else INTEGER_BINARY)
    found = [Operation(n, f"{n}(%x, %y)", dtype) for n in names]
    found.append(Operation("clamp", "clamp(%y, %x, %x)", dtype))
    compares = FLOAT_COMPARE | TOTAL if dtype in FLOATS else FLOAT_COMPARE
    return found + [Operation(name, line, "pred") for name, line in compares.items()]


def text_of(dtype: str, size: int, operations: Sequence[Operation], binary: bool) -> str:
    """A module of the operations, all of one value that is computed, so that a kernel has it."""
    array = f"[{size}]{{0}}"
    lines = [f"%m = pred{array} parameter(0)", f"%first = {dtype}{array} parameter(1)"]
    lines += [f"%other = {dtype}{array} parameter(2)", f"%x = {dtype}{array} select(%m, %first, %other)"]
    lines += [f"%y = {dtype}{array} parameter(3)"] if binary else []
    if any(o.line in TO_BASE_2.values() for o in operations):
        for name, value in (("two", 2.0), ("factor", 1 / math.log(2))):
            lines.append(f"%{name}.0 = {dtype}[] constant({value!r})")
            lines.append(f"%{name} = {dtype}{array} broadcast(%{name}.0), dimensions={{}}")
        lines.append(f"%log = {dtype}{array} log(%x)")
    lines += [f"%v{k} = {o.result}{array} {o.line}" for k, o in enumerate(operations)]
    types = ", ".join(f"{o.result}{array}" for o in operations)
    lines += [f"ROOT %t = ({types}) tuple({', '.join(f'%v{k}' for k in range(len(operations)))})"]
    return "HloModule special\n\nENTRY %main {\n  " + "\n  ".join(lines) + "\n}\n"


def as_xla_has_it(op: Operation) -> Operation:
    """Return the operation in a form that every XLA compiles."""
    return replace(op, line=TO_BASE_2.get(op.line, op.line))


def exact_values(op: Operation, arrays: Sequence[np.ndarray], dtype: str) -> np.ndarray | None:
    """The exact results where they are known: XLA's are wrong in places."""
    if dtype in INTEGERS:
        return exact_integers(op.name, arrays, dtype)
    reference = {**judge.UNARY, **judge.BINARY}.get(op.name)
    with np.errstate(all="ignore"):
        values = [a.astype(judge.wide) for a in arrays]
        if op.name == "convert to pred":
            return values[0] != 0
        if op.name in FLOAT_COMPARE and dtype == "bf16":
            return np.asarray(judge.COMPARE[op.name.split()[1]](*values))
        if op.name == "clamp":
            return judge.TERNARY["clamp"](*values, values[0])
        return None if reference is None else np.asarray(reference(*values))


def exact_integers(name: str, arrays: Sequence[np.ndarray], dtype: str) -> np.ndarray | None:
    bits = int(dtype[1:])
    found = [judge.integer(name, *map(int, values), bits) for values in zip(*arrays, strict=True) if len(values) == 2]
    if not found or None in found:
        return None
    wrapped = np.array([v % 2**bits for v in found if v is not None], f"uint{bits}")
    return wrapped.view(TYPES[dtype])


Results = Sequence[np.ndarray]


def compare(operations: Sequence[Operation], arrays: Results, dtype: str, want: Results, got: Results) -> list[str]:
    """What is worse than XLA's, with the first places."""
    found = []
    for op, x, g in zip(operations, want, got, strict=True):
        with np.errstate(all="ignore"):
            bad = np.flatnonzero(judge.wrong(g, x, exact_values(op, arrays, dtype), op.result))
        places = [f"{[a[i].item() for a in arrays]}: {g[i].item()!r}, XLA's {x[i].item()!r}" for i in bad[:4]]
        if places:
            found.append(f"{op.name} of {dtype}, {bad.size} places: " + "; ".join(places))
    return found


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("binary", [False, True], ids=["one operand", "two operands"])
@pytest.mark.parametrize("dtype", TYPES)
def test_as_good_as_xla(dtype: str, binary: bool, device: str) -> None:
    operations = binary_operations(dtype) if binary else unary_operations(dtype)
    arrays = pairs(dtype) if binary else (special(dtype),)
    text = text_of(dtype, arrays[0].size, operations, binary)
    arguments = [np.ones(arrays[0].shape, bool), arrays[0], np.zeros_like(arrays[0]), *arrays[1:]]
    asked = text_of(dtype, arrays[0].size, [as_xla_has_it(op) for op in operations], binary)
    with jax.enable_x64(True):
        made = forced.stitched(text, devices.get(device))
        got = forced.run(made, arguments)
    in_kernels = {made.plan.graph[i].op for k in made.kernels for p in k.scheduled.parts for i in p.pattern.nodes}
    assert {op.line.split("(")[0] for op in operations} <= in_kernels
    assert not (found := compare(operations, arrays, dtype, xla.run(asked, arguments), got)), "\n".join(found)


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_upper_halves_of_products(dtype: str, device: str) -> None:
    """XLA's CPU compiler refuses this operation inside a fusion: Python's integers are beside it."""
    a, b = pairs(dtype)
    with jax.enable_x64(True):
        text = forced.hlo_of(lambda x, y: lax.mulhi(x ^ y, y), a, b)
        assert " mulhi(" in text
        made = forced.stitched(text, devices.get(device))
        (got,) = forced.run(made, [a, b])
    assert len(made.kernels) == 1
    exact = exact_integers("mulhi", (a ^ b, b), dtype)
    assert exact is not None
    np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "s8", "u64"])
def test_the_text_for_a_gpu_compiles(dtype: str) -> None:
    """A function that only the host's header has."""
    for binary in (False, True):
        operations = binary_operations(dtype) if binary else unary_operations(dtype)
        if binary and dtype in INTEGERS:
            operations.append(Operation("mulhi", "mulhi(%x, %y)", dtype))
        made = forced.stitched(text_of(dtype, 1000, operations, binary), devices.get("h200"))
        assert made.kernels and made.compile_kernels("sm_90")


def test_no_operation_is_forgotten() -> None:
    """A function that the runtime has and this test does not: every opcode of one element type is tried."""
    tried = {o.line.split("(")[0] for t in TYPES for o in (*unary_operations(t), *binary_operations(t))}
    left: Mapping[str, str] = {
        "complex": "complex numbers",
        "imag": "complex numbers",
        "real": "complex numbers",
        "stochastic-convert": "no function of JAX leads to it",
        "mulhi": "has a test of its own",
    }
    assert (ELEMENTWISE_UNARY | ELEMENTWISE_BINARY) - left.keys() <= tried
    written = {"bitcast-convert", "clamp", "compare", "convert", "reduce-precision", "select"}  # tried by others
    assert TABLE.keys() - written <= tried | left.keys()
