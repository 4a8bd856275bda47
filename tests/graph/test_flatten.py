"""What flattening opens, resolves and records."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.graph import GraphError, TupleType
from tests.graph.helpers import ADD, both, module, only, ops, values


def test_fusions_open_and_remember_their_kernel() -> None:
    inner = """
%inner (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %e = f32[4]{0} exponential(%p)
}
%outer (q: f32[4], r: f32[4]) -> (f32[4], f32[4]) {
  %q = f32[4]{0} parameter(0)
  %r = f32[4]{0} parameter(1)
  %f = f32[4]{0} fusion(%r), kind=kLoop, calls=%inner
  %s = f32[4]{0} subtract(%f, %q)
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%s, %f)
}"""
    flat, _ = both(
        """
  %x = f32[4]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
  %big = (f32[4]{0}, f32[4]{0}) fusion(%x, %y), kind=kInput, calls=%outer
  %one = f32[4]{0} get-tuple-element(%big), index=1
  %two = f32[4]{0} get-tuple-element(%big), index=0
  %neg = f32[4]{0} negate(%one)
  ROOT %r = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(%two, %neg, %x)""",
        inner,
    )
    assert [(n.op, n.kernel) for n in flat.nodes[2:]] == [
        ("exponential", "big"),
        ("subtract", "big"),
        ("negate", "neg"),
    ]
    assert not flat.single and flat.results == (3, 4, 0)
    x, y = np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, 1])
    np.testing.assert_allclose(values(flat, x, y)[0], np.exp(y) - x, rtol=1e-6)


def test_a_view_that_two_kernels_make_is_no_ones() -> None:
    """jax 0.11 reads the slices for queries, keys and values through one reshape, which one of them had to write."""
    fused = """
%one (p: f32[4,6]) -> f32[2,2,6] {
  %p = f32[4,6]{1,0} parameter(0)
  %b = f32[2,2,6]{2,1,0} bitcast(%p)
  ROOT %n = f32[2,2,6]{2,1,0} negate(%b)
}
%two (q: f32[4,6]) -> f32[2,2,6] {
  %q = f32[4,6]{1,0} parameter(0)
  %c = f32[2,2,6]{2,1,0} bitcast(%q)
  ROOT %e = f32[2,2,6]{2,1,0} exponential(%c)
}
%alone (r: f32[4,6]) -> f32[6,4] {
  %r = f32[4,6]{1,0} parameter(0)
  %d = f32[6,4]{1,0} bitcast(%r)
  ROOT %a = f32[6,4]{1,0} abs(%d)
}"""
    flat, _ = both(
        """
  %x = f32[4,6]{1,0} parameter(0)
  %first = f32[2,2,6]{2,1,0} fusion(%x), kind=kLoop, calls=%one
  %second = f32[2,2,6]{2,1,0} fusion(%x), kind=kLoop, calls=%two
  %third = f32[6,4]{1,0} fusion(%x), kind=kLoop, calls=%alone
  ROOT %r = (f32[2,2,6]{2,1,0}, f32[2,2,6]{2,1,0}, f32[6,4]{1,0}) tuple(%first, %second, %third)""",
        fused,
    )
    kernels = sorted((n.op, n.kernel) for n in flat.nodes[1:])
    assert kernels == [
        ("abs", "third"),
        ("exponential", "second"),
        ("negate", "first"),
        ("reshape", ""),
        ("reshape", "third"),
    ]


def test_calls_keep_the_kernels_inside() -> None:
    called = """
%called (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %e = f32[4]{0} exponential(%p)
  ROOT %n = f32[4]{0} negate(%e)
}"""
    flat, _ = both("  %x = f32[4]{0} parameter(0)\n  ROOT %c = f32[4]{0} call(%x), to_apply=%called", called)
    assert [n.kernel for n in flat.nodes[1:]] == ["e", "n"]
    assert flat.single


def test_what_a_product_turns_for_itself_is_not_what_others_read() -> None:
    """Two kernels turn the same array around: a product, as it reads, and one that writes it for another product."""
    product = """
%product (p: f32[4,3], w: f32[4,5]) -> f32[3,5] {
  %p = f32[4,3]{1,0} parameter(0)
  %w = f32[4,5]{1,0} parameter(1)
  %inside = f32[3,4]{1,0} transpose(%p), dimensions={1,0}
  ROOT %d = f32[3,5]{1,0} dot(%inside, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%elementwise (p: f32[4,3]) -> f32[3,4] {
  %p = f32[4,3]{1,0} parameter(0)
  %u = f32[3,4]{1,0} transpose(%p), dimensions={1,0}
  ROOT %n = f32[3,4]{1,0} negate(%u)
}"""
    _, built = both(
        """
  %x = f32[4,3]{1,0} parameter(0)
  %w = f32[4,5]{1,0} parameter(1)
  %first = f32[3,5]{1,0} fusion(%x, %w), kind=kCustom, calls=%product
  %turned = f32[3,4]{1,0} transpose(%x), dimensions={1,0}
  %negated = f32[3,4]{1,0} fusion(%x), kind=kLoop, calls=%elementwise
  ROOT %r = (f32[3,5]{1,0}, f32[3,4]{1,0}, f32[3,4]{1,0}) tuple(%first, %turned, %negated)""",
        product,
    )
    turned = [n for n in built.nodes if n.op == "transpose"]
    assert [n.kernel for n in turned] == ["first", "turned"]
    assert [[built[u].op for u in built.users[n.id]] for n in turned] == [["dot"], ["negate"]]


def test_duplicated_producers_merge_but_random_numbers_do_not() -> None:
    flat, _ = both(
        """
  %x = f32[4]{0} parameter(0)
  %zero = f32[] constant(0)
  %nought = f32[] constant(0)
  %minus = f32[] constant(-0)
  %a = f32[4]{0} exponential(%x)
  %b = f32[4]{0} exponential(%x)
  %c = f32[4]{0} add(%a, %b)
  %r = f32[4]{0} rng(%zero, %nought), distribution=rng_uniform
  %s = f32[4]{0} rng(%zero, %zero), distribution=rng_uniform
  %m = f32[4]{0} broadcast(%minus), dimensions={}
  ROOT %t = (f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(%c, %r, %s, %m)"""
    )
    assert ops(flat).count("exponential") == 1
    assert ops(flat).count("rng") == 2
    assert ops(flat).count("constant") == 2  # 0 and -0 differ


def test_reductions_merge_only_with_the_same_combiner() -> None:
    maximum = ADD.replace("add", "max").replace("max(%a", "maximum(%a")
    flat, _ = both(
        """
  %x = f32[4]{0} parameter(0)
  %z = f32[] constant(0)
  %a = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add
  %b = f32[] reduce(%x, %z), dimensions={0}, to_apply=%sum
  %c = f32[] reduce(%x, %z), dimensions={0}, to_apply=%max
  ROOT %t = (f32[], f32[], f32[]) tuple(%a, %b, %c)""",
        ADD + ADD.replace("%add", "%sum") + maximum,
    )
    assert ops(flat).count("reduce") == 2
    assert flat.results[0] == flat.results[1] != flat.results[2]


def test_copies_vanish_and_layouts_stay_on_the_boundary() -> None:
    flat, _ = both(
        """
  %x = f32[4,8]{0,1} parameter(0)
  %s = f32[] parameter(1)
  %c = f32[4,8]{1,0} copy(%x)
  %start = (f32[4,8]{1,0}, f32[4,8]{1,0}, u32[]) copy-start(%c)
  %done = f32[4,8]{1,0} copy-done(%start)
  %b = f32[8,4]{0,1} bitcast(%done)
  ROOT %t = (f32[8,4]{0,1}, f32[]) tuple(%b, %s)"""
    )
    assert ops(flat) == ["transpose"]
    assert flat.layouts.parameters == ((0, 1), None)
    assert flat.layouts.results == ((0, 1), None)
    np.testing.assert_array_equal(values(flat, np.arange(32.0).reshape(4, 8), 1.0)[0], np.arange(32.0).reshape(4, 8).T)


_LOOP = """
%cond (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(10)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}
%body (t: (s32[], f32[4])) -> (s32[], f32[4]) {
  %t = (s32[], f32[4]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%t), index=0
  %v = f32[4]{0} get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i.1, %one)
  %w = f32[4]{0} add(%v, %v)
  ROOT %r = (s32[], f32[4]{0}) tuple(%next, %w)
}"""


def test_loops_carry_opened_tuples() -> None:
    flat, built = both(
        """
  %x = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[4]{0}) tuple(%zero, %x)
  %loop = (s32[], f32[4]{0}) while(%init), condition=%cond, body=%body
  ROOT %v = f32[4]{0} get-tuple-element(%loop), index=1""",
        _LOOP,
    )
    loop = only(flat, "while")
    assert isinstance(loop.type, TupleType) and len(loop.operands) == 2
    body = loop.graphs["body"]
    assert [str(body[p].type) for p in body.parameters] == ["s32[]", "f32[4]"]
    assert [n.kernel for n in body.nodes if n.op == "add"] == ["next", "w"]
    assert "trip_count" not in loop.attributes
    assert only(built, "while").attributes["trip_count"] == 10
    np.testing.assert_array_equal(values(built, np.ones(4, np.float32))[0], np.full(4, 1024, np.float32))


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_on_pred_counts_as_zero_or_one(chosen: bool) -> None:
    branches = """
%yes (p: (f32[], f32[])) -> f32[] {
  %p = (f32[], f32[]) parameter(0)
  %l = f32[] get-tuple-element(%p), index=0
  %m = f32[] get-tuple-element(%p), index=1
  ROOT %s = f32[] subtract(%l, %m)
}
%no (q: f32[]) -> f32[] {
  %q = f32[] parameter(0)
  ROOT %n = f32[] negate(%q)
}"""
    flat, built = both(
        """
  %c = pred[] parameter(0)
  %x = f32[] parameter(1)
  %y = f32[] parameter(2)
  %two = (f32[], f32[]) tuple(%x, %y)
  ROOT %r = f32[] conditional(%c, %two, %x), true_computation=%yes, false_computation=%no""",
        branches,
    )
    branch = only(flat, "conditional")
    assert [len(branch.graphs[k].parameters) for k in ("branch_0", "branch_1")] == [1, 2]
    for g in flat, built:
        assert values(g, chosen, np.float32(5), np.float32(3))[0] == (2 if chosen else -5)


def test_library_calls_keep_layouts_and_typed_attributes() -> None:
    flat, _ = both(
        """
  %x = f32[4,4]{1,0} parameter(0)
  %c = f32[4,4]{0,1} copy(%x)
  %p = (f32[4,4]{0,1}, s32[]) custom-call(%c), custom_call_target="lapack_spotrf_ffi", operand_layout_constraints={f32[4,4]{0,1}}, output_to_operand_aliasing={{0}: (0, {})}, api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
  ROOT %l = f32[4,4]{0,1} get-tuple-element(%p), index=0"""  # noqa: E501
    )
    call = only(flat, "custom-call")
    assert call.attributes["operand_layouts"] == ((0, 1),)
    assert call.attributes["result_layouts"] == ((0, 1), ())
    spd = np.float32([[4, 2, 0, 0], [2, 5, 1, 0], [0, 1, 3, 1], [0, 0, 1, 2]])
    np.testing.assert_allclose(np.tril(values(flat, spd)[0]), np.linalg.cholesky(spd), rtol=1e-5)


def test_asynchronous_operations_are_the_operations() -> None:
    flat, _ = both(
        """
  %x = f32[4]{0} parameter(0)
  %start = ((f32[4]{0}), f32[4]{0}, u32[]) fusion-start(%x), kind=kLoop, calls=%inner
  ROOT %done = f32[4]{0} fusion-done(%start)""",
        "%inner (p: f32[4]) -> f32[4] {\n  %p = f32[4]{0} parameter(0)\n  ROOT %e = f32[4]{0} exponential(%p)\n}",
    )
    assert ops(flat) == ["exponential"]


def test_the_users_line_is_the_innermost_outside_packages() -> None:
    text = """HloModule m

FileNames
1 "/home/me/train.py"
2 "/venv/lib/python3.12/site-packages/optax/losses.py"

FunctionNames
1 "step"
2 "loss"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=1 end_column=5}
2 {file_name_id=1 function_name_id=2 line=20 end_line=20 column=1 end_column=5}
3 {file_name_id=2 function_name_id=2 line=403 end_line=403 column=1 end_column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}


ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %e = f32[4]{0} exponential(%x), metadata={op_name="exp" stack_frame_id=3}
  ROOT %n = f32[4]{0} negate(%e), metadata={op_name="neg" source_file="old.py" source_line=7}
}
"""
    built = graph.build(hlo_parser.parse(text))
    assert [n.source for n in built.nodes] == ["", "/home/me/train.py:20", "old.py:7"]


def test_what_cannot_be_a_graph_says_where() -> None:
    with pytest.raises(GraphError, match=r"the value of constant big is not in the text.*print the module"):
        graph.build(module("  ROOT %big = f32[99]{0} constant({...})"))
    with pytest.raises(GraphError, match=r"x: f32\[<=4\]\S* has a dimension whose size is known only at run time"):
        graph.build(module("  ROOT %x = f32[<=4]{0} parameter(0)"))


def test_total_order_has_one_form() -> None:
    """jax 0.10's XLA writes ``type=TOTALORDER``, 0.11's ``order=TOTAL``: as a float order, NaN would compare false."""
    text = (
        "HloModule m\n\nENTRY e {{\n  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)\n"
        "  ROOT c = pred[4] compare(p, q), direction=LT, {}\n}}\n"
    )
    for order in ("type=TOTALORDER", "order=TOTAL"):
        built = graph.build(hlo_parser.parse(text.format(order)))
        assert built[built.results[0]].attributes["type"] == "TOTALORDER"


def test_a_librarys_call_has_the_layouts_that_it_asks_for() -> None:
    """Before XLA's passes its operands' own are others: LAPACK was given rows for columns, so that a solve was that of
    the transposed matrix.
    """
    text = """HloModule m
ENTRY %main (a: f32[2,3]) -> f32[2,3] {
  %a = f32[2,3]{1,0} parameter(0)
  ROOT %c = f32[2,3]{0,1} custom-call(%a), custom_call_target="lapack", operand_layout_constraints={f32[2,3]{0,1}}
}
"""
    (call,) = [n for n in graph.build(hlo_parser.parse(text)).nodes if n.op == "custom-call"]
    assert call.attributes["operand_layouts"] == ((0, 1),) == call.attributes["result_layouts"]


@pytest.mark.parametrize(
    ("dtype", "value"), [("f32", "0"), ("bf16", "0"), ("pred", "false"), ("s32", "7"), ("c64", "(1, 2)")]
)
def test_a_large_constant_of_one_value_is_broadcast(dtype: str, value: str) -> None:
    """Catches an array of millions of equal values that is kept, and compared, byte by byte."""
    text = value if value in ("0", "false") else "{" + ", ".join([value] * 4096) + "}"
    dims = "4096,4096" if value == text else "4096"
    flat, built = both(f"  ROOT %c = {dtype}[{dims}] constant({text})")
    assert ops(flat) == ops(built) == ["constant", "broadcast"] and flat[0].tensor.dims == ()
    assert {n.kernel for n in flat.nodes} == {""}
    if dims == "4096":
        (found,) = values(built)
        assert found.shape == (4096,) and len(np.unique(found)) == 1


def test_small_and_different_constants_stay() -> None:
    """Catches constants that folding needs, and those of several values, that lose their values."""
    numbers = ", ".join(map(str, range(100)))
    flat, _ = both(
        f"""
  %a = s32[3]{{0}} constant({{5, 5, 5}})
  %b = s32[100]{{0}} constant({{{numbers}}})
  ROOT %t = (s32[3], (s32[100], f32[4096])) constant(({{5, 5, 5}}, ({{{numbers}}}, 0)))"""
    )
    assert sorted(ops(flat)) == ["broadcast", *["constant"] * 3]
    assert sorted(n.literal.size for n in flat.nodes if n.literal is not None) == [1, 3, 100]
