"""What is left to XLA becomes a pattern by what it is, wherever in the graph it stands."""

from __future__ import annotations

import pytest

from jax_stitch.analysis.reach import Reach
from jax_stitch.fusion.delta_evaluator import strided_bytes
from jax_stitch.fusion.launches.leftover_kernels import as_patterns
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
