"""What is left to XLA becomes a pattern by what it is, wherever in the graph it stands."""

from __future__ import annotations

import pytest

from jax_stitch.analysis.reach import Reach
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
