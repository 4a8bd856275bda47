"""Each pass on the smallest HLO that shows it: the form it gives, and that values stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.frontend import replay
from tests.graph.helpers import ADD, assert_equal, both, only, ops, values

# -- data movement


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%a = f32[24]{0} reshape(%x)\n ROOT %b = f32[2,12]{1,0} reshape(%a)", ["reshape"]),
        ("%a = f32[24]{0} reshape(%x)\n ROOT %b = f32[4,6]{1,0} reshape(%a)", []),
        ("%a = f32[6,4]{1,0} transpose(%x), dimensions={1,0}\n ROOT %b = f32[4,6]{1,0} transpose(%a), dimensions={1,0}", []),  # noqa: E501
        ("ROOT %a = f32[4,6]{1,0} slice(%x), slice={[0:4], [0:6]}", []),
        ("%z = f32[] constant(0)\n ROOT %a = f32[4,6]{1,0} pad(%x, %z), padding=0_0x0_0", []),
        ("ROOT %a = f32[4,6]{1,0} concatenate(%x), dimensions={1}", []),
        ("ROOT %a = f32[4,6]{1,0} convert(%x)", []),
        ("%r = f32[4,1,6]{2,1,0} reshape(%x)\n ROOT %a = f32[1,4,6]{2,1,0} transpose(%r), dimensions={1,0,2}", ["reshape"]),  # noqa: E501
        ("ROOT %a = f32[6,2,4]{2,1,0} broadcast(%x), dimensions={2,0}", ["transpose", "broadcast"]),
        ("%a = f32[4,3,6]{2,1,0} broadcast(%x), dimensions={0,2}\n ROOT %b = f32[4,2,3,6]{3,2,1,0} broadcast(%a), dimensions={0,2,3}", ["broadcast"]),  # noqa: E501
        ("%a = f32[4,3,6]{2,1,0} broadcast(%x), dimensions={0,2}\n ROOT %b = f32[3,4,6]{2,1,0} transpose(%a), dimensions={1,0,2}", ["broadcast"]),  # noqa: E501
        ("%t = pred[] constant(true)\n %n = f32[4,6]{1,0} negate(%x)\n ROOT %s = f32[4,6]{1,0} select(%t, %x, %n)", []),
        ("%i = s32[] constant(3)\n %j = s32[] constant(-5)\n ROOT %s = f32[2,3]{1,0} dynamic-slice(%x, %i, %j), dynamic_slice_sizes={2,3}", ["slice"]),  # noqa: E501
    ],
)  # fmt: skip
def test_movement(body: str, expected: list[str]) -> None:
    flat, built = both("%x = f32[4,6]{1,0} parameter(0)\n" + body)
    assert ops(built) == expected
    assert_equal(flat, built, np.arange(24, dtype=np.float32).reshape(4, 6))


def test_rotations_are_slices() -> None:
    """Catches rotations the wrong way round, by the shift of another dimension, or by more than the size left as it is:
    newer versions of XLA have them, and no kernel nor rule of replay.
    """
    body = "ROOT %a = f32[4,6]{1,0} shuffle(%x), dimensions={1,0}, mode=rotate, shifts={2,-5}"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    built = both("%x = f32[4,6]{1,0} parameter(0)\n" + body)[1]
    assert sorted(ops(built)) == ["concatenate"] * 2 + ["slice"] * 4
    np.testing.assert_array_equal(values(built, x)[0], np.roll(x, (-2, 5), (1, 0)))
    built = both("%x = f32[4,6]{1,0} parameter(0)\n" + body.replace("{2,-5}", "{-6,8}"))[1]
    assert ops(built) == []


def test_index_vectors_come_to_light() -> None:
    flat, built = both(
        """
  %y = s32[5]{0} parameter(0)
  %i = s32[5,1,1]{2,1,0} iota(), iota_dimension=0
  %z = s32[5,1,1]{2,1,0} reshape(%y)
  %c = s32[5,1,2]{2,1,0} concatenate(%i, %z), dimensions={2}
  ROOT %r = s32[5,2]{1,0} reshape(%c)"""
    )
    assert ops(built) == ["iota", "reshape", "concatenate"]
    assert_equal(flat, built, np.arange(5, dtype=np.int32) * 3)


# -- constants


_INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
_BINARY = ["add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum", "shift-left", "shift-right-logical"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(_INTEGERS), st.sampled_from(_BINARY), st.data())
def test_integers_fold_to_what_xla_calculates(dtype: str, op: str, data: st.DataObject) -> None:
    bits, signed = int(dtype[1:]), dtype[0] == "s"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = st.sampled_from([low, -1 if signed else 1, 0, 1, bits - 1, bits, high])
    pairs = data.draw(st.lists(st.tuples(edges, edges | st.integers(low, high)), min_size=3, max_size=3))
    a, b = (", ".join(str(p[i]) for p in pairs) for i in (0, 1))
    flat, built = both(
        f"""
  %a = {dtype}[3]{{0}} constant({{{a}}})
  %b = {dtype}[3]{{0}} constant({{{b}}})
  %c = {dtype}[3]{{0}} {op}(%a, %b)
  %l = pred[3]{{0}} compare(%c, %a), direction=LT
  %v = u16[3]{{0}} convert(%c)
  ROOT %t = ({dtype}[3]{{0}}, pred[3]{{0}}, u16[3]{{0}}) tuple(%c, %l, %v)"""
    )
    assert set(ops(built)) == {"constant"}
    assert_equal(flat, built)


def test_folding_stops_at_large_arrays_and_inexact_functions() -> None:
    numbers = ", ".join(map(str, range(65)))
    _, built = both(f"%a = f32[65]{{0}} constant({{{numbers}}})\n ROOT %b = f32[65]{{0}} add(%a, %a)")
    assert ops(built) == ["constant", "add"]
    _, built = both("%a = f32[] constant(1)\n ROOT %b = f32[] exponential(%a)")
    assert ops(built) == ["constant", "exponential"]
    _, built = both("%a = f32[] constant(1)\n ROOT %b = f32[8]{0} broadcast(%a), dimensions={}")
    assert ops(built) == ["constant", "broadcast"]


# -- loops


def loop(start: int, limit: int, step: int, direction: str, tail: str = "") -> tuple[str, str]:
    computations = f"""
%less (p: u32[], q: u32[]) -> pred[] {{
  %p = u32[] parameter(0)
  %q = u32[] parameter(1)
  ROOT %o = pred[] compare(%p, %q), direction=LT
}}
%cond (s: (s32[], u32[4], u32[3])) -> pred[] {{
  %s = (s32[], u32[4]{{0}}, u32[3]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant({limit})
  ROOT %lt = pred[] compare(%i, %n), direction={direction}
}}
%body (t: (s32[], u32[4], u32[3])) -> (s32[], u32[4], u32[3]) {{
  %t = (s32[], u32[4]{{0}}, u32[3]{{0}}) parameter(0)
  %i.1 = s32[] get-tuple-element(%t), index=0
  %v = u32[4]{{0}} get-tuple-element(%t), index=1
  %k = u32[3]{{0}} get-tuple-element(%t), index=2
  %one = s32[] constant({step})
  %next = s32[] add(%i.1, %one)
  %d = u32[1]{{0}} dynamic-slice(%k, %i.1), dynamic_slice_sizes={{1}}
  %e = u32[] reshape(%d)
  %f = u32[4]{{0}} broadcast(%e), dimensions={{}}
  %w = u32[4]{{0}} {tail if tail else "multiply(%v, %f)"}
  ROOT %r = (s32[], u32[4]{{0}}, u32[3]{{0}}) tuple(%next, %w, %k)
}}"""
    body = f"""
  %x = u32[4]{{0}} parameter(0)
  %keys = u32[3]{{0}} constant({{3, 5, 7}})
  %first = s32[] constant({start})
  %init = (s32[], u32[4]{{0}}, u32[3]{{0}}) tuple(%first, %x, %keys)
  %loop = (s32[], u32[4]{{0}}, u32[3]{{0}}) while(%init), condition=%cond, body=%body
  ROOT %out = u32[4]{{0}} get-tuple-element(%loop), index=1"""
    return body, computations


@pytest.mark.parametrize(
    ("start", "limit", "step", "direction", "trips"),
    [
        (0, 3, 1, "LT", 3),
        (0, 3, 1, "LE", 4),
        (5, 0, -2, "GT", 3),
        (4, 0, -2, "GE", 3),
        (0, 6, 2, "NE", 3),
        (7, 3, 1, "LT", 0),
    ],
)
def test_short_loops_of_cheap_operations_unroll(start: int, limit: int, step: int, direction: str, trips: int) -> None:
    flat, built = both(*loop(start, limit, step, direction))
    assert "while" not in ops(built)
    assert ops(built).count("multiply") == trips
    assert not {"dynamic-slice", "slice", "compare", "reshape"} & set(ops(built)), "what the counter decides is folded"
    assert_equal(flat, built, np.arange(4, dtype=np.uint32))


@pytest.mark.parametrize(
    ("start", "limit", "step", "direction", "trips"),
    [(0, 100, 3, "LT", 34), (0, 3, -1, "LT", None), (0, 5, 2, "NE", None)],
)
def test_long_and_endless_loops_stay(start: int, limit: int, step: int, direction: str, trips: int | None) -> None:
    _, built = both(*loop(start, limit, step, direction))
    assert only(built, "while").attributes.get("trip_count") == trips


def test_what_a_loop_leaves_as_it_was_is_read_before_it() -> None:
    """Read after it, it kept the loop from every kernel: programs return all of their state, parameters with it."""
    body, computations = loop(0, 100, 3, "LT")
    body = (
        body.replace("ROOT ", "")
        + """
  %kept = u32[3]{0} get-tuple-element(%loop), index=2
  ROOT %both = (u32[4]{0}, u32[3]{0}) tuple(%out, %kept)"""
    )
    flat, built = both(body, computations)
    assert [built[r].op for r in built.results] == ["get-tuple-element", "constant"]
    assert_equal(flat, built, np.arange(4, dtype=np.uint32))


def test_loops_of_dear_operations_stay() -> None:
    _, built = both(*loop(0, 3, 1, "LT", "sort(%v), dimensions={0}, to_apply=%less"), )  # fmt: skip
    assert only(built, "while").attributes["trip_count"] == 3


# -- maps, windows


def test_maps_are_inlined() -> None:
    computation = """
%f (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %k = f32[] constant(3)
  %m = f32[] multiply(%a, %k)
  ROOT %s = f32[] subtract(%m, %b)
}"""
    _, built = both(
        """
  %x = f32[5]{0} parameter(0)
  %y = f32[5]{0} parameter(1)
  ROOT %m = f32[5]{0} map(%x, %y), dimensions={0}, to_apply=%f""",
        computation,
    )
    assert ops(built) == ["constant", "broadcast", "multiply", "subtract"]
    np.testing.assert_array_equal(
        values(built, np.float32([1, 2, 3, 4, 5]), np.ones(5, np.float32))[0], [2, 5, 8, 11, 14]
    )


@pytest.mark.parametrize(
    ("window", "dims", "result", "initial", "tiled"),
    [
        ("size=2x3 stride=2x3", (4, 6), (2, 2), "0.5", True),
        ("size=1x4 stride=1x4 pad=0_0x1_1", (4, 6), (4, 2), "0", True),
        ("size=2x1 stride=2x1 pad=0_1x0_0", (3, 6), (2, 6), "0", True),
        ("size=2x1 stride=2x1 pad=0_1x0_0", (3, 6), (2, 6), "0.5", False),  # padding is skipped, not combined
        ("size=2x3 stride=1x3", (4, 6), (3, 2), "0", False),
        ("size=2x2 stride=2x2", (5, 6), (2, 3), "0", False),  # the last row is in no window
        ("size=1x3 stride=1x3 rhs_dilate=1x2", (4, 8), (4, 2), "0", False),
    ],
)
def test_windows(window: str, dims: tuple[int, int], result: tuple[int, int], initial: str, tiled: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, dims).astype(np.float32)
    flat, built = both(
        f"""
  %x = f32[{dims[0]},{dims[1]}]{{1,0}} parameter(0)
  %z = f32[] constant({initial})
  ROOT %w = f32[{result[0]},{result[1]}]{{1,0}} reduce-window(%x, %z), window={{{window}}}, to_apply=%add""",
        ADD,
    )
    assert ("reduce" in ops(built)) == tiled
    assert ("reduce-window" in ops(built)) != tiled
    assert_equal(flat, built, x)


@pytest.mark.parametrize(
    ("op", "dtype", "initial", "joined"),
    [
        ("add", "f32", "0", True),
        ("add", "f32", "1", False),  # it would count once instead of twice
        ("maximum", "f32", "-inf", True),
        ("maximum", "s32", "-2147483648", True),
        ("maximum", "s32", "0", False),
        ("minimum", "u32", "4294967295", True),
        ("and", "pred", "true", True),
        ("subtract", "f32", "0", False),
    ],
)
def test_reductions_in_two_steps_join(op: str, dtype: str, initial: str, joined: bool) -> None:
    combiner = ADD.replace("f32[] add", f"{dtype}[] {op}").replace("f32", dtype)
    flat, built = both(
        f"""
  %x = {dtype}[3,10]{{1,0}} parameter(0)
  %z = {dtype}[] constant({initial})
  %p = {dtype}[3,12]{{1,0}} pad(%x, %z), padding=0_0x1_1
  %s = {dtype}[3,4,3]{{2,1,0}} reshape(%p)
  %a = {dtype}[3,4]{{1,0}} reduce(%s, %z), dimensions={{2}}, to_apply=%add
  ROOT %b = {dtype}[3]{{0}} reduce(%a, %z), dimensions={{1}}, to_apply=%add""",
        combiner,
    )
    assert ops(built).count("reduce") == (1 if joined else 2)
    if op != "subtract":
        x = np.random.default_rng(0).integers(0, 9, (3, 10))
        assert_equal(flat, built, x.astype({"f32": np.float32, "s32": np.int32, "u32": np.uint32, "pred": bool}[dtype]))


def test_a_reduction_of_a_reduction_is_one() -> None:
    """The mean of a group of channels: over the places first, then over the channels of each group, which a reshape
    has cut out of all channels.
    """
    flat, built = both(
        """
  %x = f32[2,5,6]{2,1,0} parameter(0)
  %z = f32[] constant(0)
  %s = f32[2,5,3,2]{3,2,1,0} reshape(%x)
  %a = f32[2,3,2]{2,1,0} reduce(%s, %z), dimensions={1}, to_apply=%add
  ROOT %b = f32[2,3]{1,0} reduce(%a, %z), dimensions={2}, to_apply=%add""",
        ADD,
    )
    assert ops(built).count("reduce") == 1
    assert_equal(flat, built, np.arange(60.0, dtype=np.float32).reshape(2, 5, 6))


ARGMAX = """
%larger (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  %a = f32[] parameter(0)
  %i = s32[] parameter(1)
  %b = f32[] parameter(2)
  %j = s32[] parameter(3)
  %gt = pred[] compare(%a, %b), direction=GT
  %ne = pred[] compare(%a, %a), direction=NE
  %or = pred[] or(%gt, %ne)
  %eq = pred[] compare(%a, %b), direction=EQ
  %lt = pred[] compare(%i, %j), direction=LT
  %and = pred[] and(%eq, %lt)
  %or.1 = pred[] or(%or, %and)
  %x = f32[] select(%or, %a, %b)
  %y = s32[] select(%or.1, %i, %j)
  ROOT %t = (f32[], s32[]) tuple(%x, %y)
}
"""


@pytest.mark.parametrize(
    ("second", "order", "joined"),
    [("%z, %o", "%v, %w", True), ("%z, %one", "%v, %w", False), ("%z, %o", "%u, %w", False)],
    ids=["argmax", "other initial values", "another value"],
)
def test_an_argmax_in_two_steps_joins(second: str, order: str, joined: bool) -> None:
    """Of one step with 128 lanes of each row, elements far apart, and another that waits for it."""
    flat, built = both(
        f"""
  %x = f32[3,12]{{1,0}} parameter(0)
  %n = s32[3,12]{{1,0}} iota(), iota_dimension=1
  %z = f32[] constant(-inf)
  %o = s32[] constant(0)
  %one = s32[] constant(1)
  %xs = f32[3,4,3]{{2,1,0}} reshape(%x)
  %ns = s32[3,4,3]{{2,1,0}} reshape(%n)
  %a = (f32[3,4]{{1,0}}, s32[3,4]{{1,0}}) reduce(%xs, %ns, %z, %o), dimensions={{2}}, to_apply=%larger
  %v = f32[3,4]{{1,0}} get-tuple-element(%a), index=0
  %w = s32[3,4]{{1,0}} get-tuple-element(%a), index=1
  %u = f32[3,4]{{1,0}} negate(%v)
  %b = (f32[3]{{0}}, s32[3]{{0}}) reduce({order}, {second}), dimensions={{1}}, to_apply=%larger
  ROOT %r = s32[3]{{0}} get-tuple-element(%b), index=1""",
        ARGMAX,
    )
    assert ops(built).count("reduce") == (1 if joined else 2) and ops(built).count("reshape") == (0 if joined else 2)
    x = np.array([[1, 5, 2, 5] * 3, [-np.inf] * 12, [0, 1, np.nan, 3] * 3], np.float32)
    assert_equal(flat, built, x)


def test_sums_of_several_values_in_two_steps_stay() -> None:
    """Their initial values would count once instead of twice."""
    combiner = ARGMAX.replace("select(%or, %a, %b)", "add(%a, %b)").replace("select(%or.1, %i, %j)", "add(%i, %j)")
    _, built = both(
        """
  %x = f32[3,4]{1,0} parameter(0)
  %n = s32[3,4]{1,0} iota(), iota_dimension=1
  %z = f32[] constant(1)
  %o = s32[] constant(1)
  %a = (f32[3]{0}, s32[3]{0}) reduce(%x, %n, %z, %o), dimensions={1}, to_apply=%larger
  %v = f32[3]{0} get-tuple-element(%a), index=0
  %w = s32[3]{0} get-tuple-element(%a), index=1
  %b = (f32[], s32[]) reduce(%v, %w, %z, %o), dimensions={0}, to_apply=%larger
  ROOT %r = s32[] get-tuple-element(%b), index=1""",
        combiner,
    )
    assert ops(built).count("reduce") == 2


# -- library calls


def test_triangular_solve_and_topk_are_restored() -> None:
    flat, built = both(
        """
  %a = f32[4,4]{1,0} parameter(0)
  %b = f32[4,2]{1,0} parameter(1)
  %s = (f32[4,2]{0,1}, s8[0]{0}) custom-call(%a, %b), custom_call_target="__cublas$triangularSolve", backend_config={"left_side":true,"lower":true,"unit_diagonal":false,"transpose_a":"NO_TRANSPOSE"}
  %x = f32[4,2]{0,1} get-tuple-element(%s), index=0
  %k = (f32[4,1]{1,0}, s32[4,1]{1,0}) custom-call(%a), custom_call_target="TopK", called_computations={%add}
  %v = f32[4,1]{1,0} get-tuple-element(%k), index=0
  ROOT %t = (f32[4,2]{0,1}, f32[4,1]{1,0}) tuple(%x, %v)""",  # noqa: E501
        ADD,
    )
    assert {"triangular-solve", "topk"} <= set(ops(built)) and "custom-call" not in ops(built)
    assert len(replay.unsupported(flat)) == 1 and replay.unsupported(built) == []
    a, b = np.tril(np.ones((4, 4), np.float32)), np.ones((4, 2), np.float32)
    x, v = values(built, a, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=1e-6)
    np.testing.assert_array_equal(v, np.ones((4, 1)))
