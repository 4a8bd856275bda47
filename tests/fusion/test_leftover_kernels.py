"""What is left to XLA becomes a pattern by what it is, wherever in the graph it stands."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.analysis.reach import Reach
from jax_stitch.fusion import explore
from jax_stitch.fusion.delta_evaluator import strided_bytes
from jax_stitch.fusion.launches.leftover_kernels import as_patterns, worth_packing
from tests.fusion import forced

H200 = forced.device("h200")
TURNED = """
%turned (p0: f32[16,8,64,64]) -> f32[2,512,512] {
  %p0 = f32[16,8,64,64]{3,2,1,0} parameter(0)
  %heads = f32[16,64,8,64]{3,2,1,0} transpose(%p0), dimensions={0,3,1,2}
  %flat = f32[2,512,512]{2,1,0} reshape(%heads)
  ROOT %back = f32[2,512,512]{2,1,0} transpose(%flat), dimensions={0,2,1}
}
"""
"""Of the two values of one shape only the last lies along what is read."""


@pytest.mark.parametrize("before", range(8))
def test_rows_do_not_depend_on_where_a_kernel_stands(before: int) -> None:
    """The order of a set of node ids chose the rows: of eighteen such kernels one or two could be packed."""
    lines = [f"%a{k} = f32[3] parameter({k})" for k in range(before)]
    lines += [
        f"%y = f32[16,8,64,64] parameter({before})",
        "ROOT %f = f32[2,512,512] fusion(%y), kind=kInput, calls=%turned",
    ]
    graph = forced.graph_from("\n".join(f"  {line}" for line in lines), TURNED)
    members = [n.id for n in graph.nodes if n.kernel == "f"]
    assert len(members) == 3
    (pattern,) = as_patterns(graph, set(members), Reach(graph), H200)
    assert pattern.nodes == frozenset(members)
    assert strided_bytes(graph, pattern) == 0


MASKED = """
%mask (p0: u32[64,512]) -> pred[64,512] {
  %p0 = u32[64,512] parameter(0)
  %eight = u32[] constant(8)
  %eights = u32[64,512] broadcast(%eight), dimensions={}
  %turned = u32[64,512] shift-left(%p0, %eights)
  %mixed = u32[64,512] xor(%turned, %p0)
  ROOT %small = pred[64,512] compare(%mixed, %eights), direction=LT
}
%dropped (p0: pred[64,512], p1: u32[64,512]) -> u32[64,512] {
  %p0 = pred[64,512] parameter(0)
  %p1 = u32[64,512] parameter(1)
  %eight = u32[] constant(8)
  %eights = u32[64,512] broadcast(%eight), dimensions={}
  ROOT %kept = u32[64,512] select(%p0, %p1, %eights)
}
"""
BODY = """
  %x = u32[64,512] parameter(0)
  %y = u32[64,512] parameter(1)
  %m = pred[64,512] fusion(%x), kind=kLoop, calls=%mask
  ROOT %d = u32[64,512] fusion(%m, %y), kind=kLoop, calls=%dropped
"""


def test_what_kernels_read_rather_than_compute_is_packed() -> None:
    """A dropout's mask that two kernels read was left to XLA, which launched three kernels for it."""
    graph = forced.graph_from(BODY, MASKED)
    mask, reader = ({n.id for n in graph.nodes if n.kernel == kernel} for kernel in ("m", "d"))
    (reading,) = as_patterns(graph, reader, Reach(graph), H200)
    small = next(i for i in mask if graph[i].op == "compare")
    assert worth_packing(graph, [reading], (), (), H200) == [], "what reads it may compute it for itself"
    (packed,) = worth_packing(graph, [reading], (), {small}, H200)
    assert small in packed.outputs


def test_a_number_everywhere_is_no_part_left_over() -> None:
    """What stands before a kernel reads the same number: it is of neither, and all was left to XLA for want of it."""
    body = """
      %x = u32[64,512] parameter(0)
      %p = pred[64,512] parameter(1)
      %d = u32[64,512] fusion(%p, %x), kind=kLoop, calls=%dropped
      ROOT %m = pred[64,512] fusion(%d), kind=kLoop, calls=%mask
    """
    graph = forced.graph_from(body, MASKED)
    before = next(n.id for n in graph.nodes if n.op == "select")
    rest = {n.id for n in graph.nodes if n.op in ("broadcast", "shift-left", "xor", "compare")}
    (pattern,) = as_patterns(graph, rest, Reach(graph, [frozenset({before})]), H200)
    assert {graph[i].op for i in pattern.nodes} == {"shift-left", "xor", "compare"}


SPLIT = """
HloModule split

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
%finished (p: f32[4,256,144]) -> (f32[256,144], f32[256,36]) {
  %p = f32[4,256,144] parameter(0)
  %zero = f32[] constant(0)
  %sum = f32[256,144] reduce(%p, %zero), dimensions={0}, to_apply=%add
  %part = f32[256,36] slice(%sum), slice={[0:256], [36:72]}
  ROOT %both = (f32[256,144], f32[256,36]) tuple(%sum, %part)
}
%body (c: (s32[], f32[256,36], f32[36,36])) -> (s32[], f32[256,36], f32[36,36]) {
  %c = (s32[], f32[256,36], f32[36,36]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[256,36] get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %v = f32[36,36] get-tuple-element(%c), index=2
  %d = f32[256,36] dot(%x, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %y = f32[256,36] tanh(%d)
  ROOT %r = (s32[], f32[256,36], f32[36,36]) tuple(%next, %y, %v)
}
%goes (c: (s32[], f32[256,36], f32[36,36])) -> pred[] {
  %c = (s32[], f32[256,36], f32[36,36]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %most = s32[] constant(100)
  ROOT %less = pred[] compare(%i, %most), direction=LT
}
ENTRY %main (p: f32[4,256,144], w: f32[144,512], v: f32[36,36]) -> (f32[256,36], f32[256,512]) {
  %p = f32[4,256,144] parameter(0)
  %w = f32[144,512] parameter(1)
  %v = f32[36,36] parameter(2)
  %f = (f32[256,144], f32[256,36]) fusion(%p), kind=kLoop, calls=%finished
  %sum = f32[256,144] get-tuple-element(%f), index=0
  %part = f32[256,36] get-tuple-element(%f), index=1
  %zero = s32[] constant(0)
  %start = (s32[], f32[256,36], f32[36,36]) tuple(%zero, %part, %v)
  %loop = (s32[], f32[256,36], f32[36,36]) while(%start), condition=%goes, body=%body
  %last = f32[256,36] get-tuple-element(%loop), index=1
  %product = f32[256,512] dot(%sum, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = (f32[256,36], f32[256,512]) tuple(%last, %product)
}
"""
"""A product that XLA has split: its sum goes to another product, and a part of it to a loop."""


def test_leftovers_beside_a_loop_may_be_several_patterns() -> None:
    """A sum and what is cut of it are one kernel of XLA's by itself, and two around a loop that reads the one."""
    plan = explore(graph.build(hlo_parser.parse(SPLIT)), H200)
    (kernel,) = plan.kernels
    assert [sorted(plan.graph[i].op for i in p.nodes) for p in kernel] == [
        ["reduce"],
        ["slice"],
        ["get-tuple-element", "while"],
    ]
    assert [p.phase for p in kernel] == [0, 1, 2]


def test_phases_around_a_loop_compute_what_they_should() -> None:
    made = forced.stitched(SPLIT, H200, 1)
    rng = np.random.default_rng(0)
    p, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((4, 256, 144), (144, 512), (36, 36)))
    last, product = jax.jit(made.compile("host"))([p, w, v / 8])
    x = p.sum(0, dtype=np.float64)[:, 36:72]
    for _ in range(100):
        x = np.tanh(x @ (v / 8).astype(np.float64))
    np.testing.assert_allclose(last, x, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(product, p.sum(0) @ w, rtol=1e-3, atol=1e-2)
