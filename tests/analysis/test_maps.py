"""Which elements an operation reads: against XLA, for every element of small arrays."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.analysis.maps import reads, value_of
from jax_stitch.frontend import replay
from jax_stitch.graph.model import TensorType
from jax_stitch.ir.indices import const, var
from jax_stitch.ir.indices.expr import Div, Expr, Mod, Within
from tests.analysis.snippets import INSTRUCTIONS, chosen, graph_of, indices_of
from tests.fusion import forced

NUMPY = {"s32": np.int32, "s64": np.int64, "u8": np.uint8, "u32": np.uint32}


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_reads_what_xla_reads(name: str, seed: int) -> None:
    """Arrays whose elements are all different tell which element was read; indices reach past both ends."""
    built, node = graph_of(INSTRUCTIONS[name])
    rng = np.random.default_rng(seed)
    operands, start = [], 1
    for i in node.operands:
        t = built[i].tensor
        if built[i].name[0] in "ij":
            low = 0 if t.dtype[0] == "u" else -2
            operands.append(rng.integers(low, 8, t.dims).astype(NUMPY[t.dtype]))
        else:
            operands.append(np.arange(start, start + t.size, dtype=np.int32).reshape(t.dims))
            start = start * 100 + t.size
    by_node = dict(zip(node.operands, operands, strict=True))
    with jax.enable_x64(True):
        (result,) = replay.replay(replay.StitchedGraph(built))([by_node[p] for p in built.parameters])
    for index in indices_of(node.tensor.dims):
        values = [by_node[node.operands[k]][at] for k, at in chosen(built, node, index, operands)]
        assert np.sum(values) == np.asarray(result)[index], (index, values)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_reads_of_a_symbolic_index_are_those_of_its_values(name: str) -> None:
    """Simplification by ranges must not change which element is read, or whether it is."""
    built, node = graph_of(INSTRUCTIONS[name])
    dims = node.tensor.dims
    every = reads(built, node, tuple(var(f"i{d}", size) for d, size in enumerate(dims)))
    for index in indices_of(dims):
        values = {f"i{d}": i for d, i in enumerate(index)}
        fixed = {r.operand: r for r in reads(built, node, tuple(map(const, index)))}
        for read in every:
            if read.starts or not all(
                g.low <= (v := g.value.evaluate(values)) <= g.high and v % g.step == 0 for g in read.guards
            ):
                continue
            at = tuple(e.evaluate(values) for e in read.index)
            assert all(e.low <= i <= e.high for e, i in zip(read.index, at, strict=True))
            same = [r for r in [fixed.get(read.operand)] if r is not None]
            if same and not any(r.guards for r in every if r.operand != read.operand):
                assert at == tuple(e.evaluate({}) for e in same[0].index)


def truncated(e: Expr, values: dict[str, int]) -> int:
    """The value as C++ computes it: division and remainder towards zero."""

    def atom_value(atom) -> int:
        match atom:
            case Div():
                return int(truncated(atom.of, values) / atom.by)
            case Mod():
                x = truncated(atom.of, values)
                return x - int(x / atom.by) * atom.by
            case Within():
                return truncated(atom.of, values)
        return values[atom.name]

    return e.offset + sum(c * atom_value(a) for a, c in e.terms)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(2, 9),
    st.integers(2, 5),
    st.sampled_from([-3, -1, 1, 2, 4]),
    st.sampled_from([-2, 0, 1, 6]),
    st.integers(-9, 9),
    st.lists(st.tuples(st.sampled_from("dm-"), st.sampled_from([2, 3, 4, 6])), min_size=1, max_size=4),
)
def test_expressions_mean_the_same_in_cpp(m, n, step_a, step_b, offset, operations) -> None:
    """A reversed dimension under a reshape: floor and truncation differ below zero."""
    e = var("a", m) * step_a + var("b", n) * step_b + offset
    for kind, c in operations:
        e = {"d": e // c, "m": e % c, "-": -e + c}[kind]
    for a, b in indices_of((m, n)):
        assert truncated(e, {"a": a, "b": b}) == e.evaluate({"a": a, "b": b})


I = "s32[4] iota(), iota_dimension=0"  # noqa: E741
THREES = "%t = s32[] constant(3)\n%c = s32[4] broadcast(%t), dimensions={}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"%r = {I}", [0, 1, 2, 3]),
        (f"%i = {I}\n%r = s32[4] reverse(%i), dimensions={{0}}", [3, 2, 1, 0]),
        (f"%i = {I}\n%z = s32[] constant(7)\n%r = s32[7] pad(%i, %z), padding=1_2", None),
        (f"%i = {I}\n%r = s32[8] concatenate(%i, %i), dimensions={{0}}", None),
        (f"%i = {I}\n%r = s8[4] convert(%i)", [0, 1, 2, 3]),
        ("%i = u8[300] iota(), iota_dimension=0\n%r = s32[300] convert(%i)", None),
        ("%i = s32[300] iota(), iota_dimension=0\n%r = s8[300] convert(%i)", None),
        ("%p = s32[4] parameter(0)\n%r = s32[4] reverse(%p), dimensions={0}", None),
        (f"%i = {I}\n{THREES}\n%r = s32[4] multiply(%c, %i)", [0, 3, 6, 9]),
        (f"%i = {I}\n%r = s32[4] multiply(%i, %i)", None),
        (f"%i = {I}\n{THREES}\n%r = s32[4] divide(%i, %c)", [0, 0, 0, 1]),
        (f"%i = {I}\n{THREES}\n%r = s32[4] remainder(%i, %c)", [0, 1, 2, 0]),
        (f"%i = {I}\n{THREES}\n%n = s32[4] subtract(%i, %c)\n%r = s32[4] divide(%n, %c)", None),
        (f"%i = {I}\n{THREES}\n%r = s32[4] divide(%c, %i)", None),
        (
            "%i = s8[100] iota(), iota_dimension=0\n%t = s8[] constant(3)\n%c = s8[100] broadcast(%t), dimensions={}\n"
            "%r = s8[100] multiply(%i, %c)",
            None,
        ),
    ],
)
def test_values_known_as_index_expressions(body: str, expected: list[int] | None) -> None:
    """An iota that wraps around, or one mixed with other values, taken for the index it was."""
    lines = body.splitlines()
    built = forced.graph_from("\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))
    node = built[built.results[0]]
    assert isinstance(node.type, TensorType)
    found = value_of(built, node, (var("i", node.type.dims[0]),))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert [found.evaluate({"i": i}) for i in range(len(expected))] == expected
