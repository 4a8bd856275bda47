"""Fusions that Triton or a library runs: each of their reductions ends what counts as a kernel."""

from __future__ import annotations

import hlo_parser
from jax_stitch import graph as graphs
from jax_stitch import plan_hlo
from jax_stitch.graph.model import STAGE

SOFTMAX = """HloModule m, is_scheduled=true

larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

softmax {
  x = f32[256,1024]{1,0} parameter(0)
  least = f32[] constant(-inf)
  largest = f32[256]{0} reduce(x, least), dimensions={1}, to_apply=larger
  wide = f32[256,1024]{1,0} broadcast(largest), dimensions={0}
  less = f32[256,1024]{1,0} subtract(x, wide)
  powers = f32[256,1024]{1,0} exponential(less)
  zero = f32[] constant(0)
  sums = f32[256]{0} reduce(powers, zero), dimensions={1}, to_apply=add
  divisor = f32[256,1024]{1,0} broadcast(sums), dimensions={0}
  ROOT y = f32[256,1024]{1,0} divide(powers, divisor)
}

ENTRY e {
  x = f32[256,1024]{1,0} parameter(0)
  ROOT whole = f32[256,1024]{1,0} fusion(x), kind=KIND, calls=softmax
}
"""


def kernels(kind: str) -> dict[str, str]:
    graph = graphs.build(hlo_parser.parse(SOFTMAX.replace("KIND", kind)))
    return {n.name: n.kernel for n in graph.nodes if n.kernel}


def test_each_reduction_ends_a_kernel() -> None:
    """As XLA's own rules would have it: taken for one kernel, nothing in it could be improved."""
    found = kernels("kCustom")
    assert found["largest"] == f"whole{STAGE}0"
    assert found["less"] == found["powers"] == found["sums"] == f"whole{STAGE}1"
    assert found["y"] == "whole"


def test_fusions_of_xlas_own_are_one_kernel() -> None:
    assert set(kernels("kLoop").values()) == {"whole"}


def test_users_see_the_fusions_name() -> None:
    """Catches names in a plan or an explanation that no HLO has."""
    plan = plan_hlo(SOFTMAX.replace("KIND", "kCustom"), "h200")
    (kernel,) = plan.kernels
    assert kernel.xla_kernels == ("whole",)
    for name in ("whole", "largest", "powers"):
        assert plan.explain(name).xla_kernel == "whole"
        assert STAGE + "0" not in str(plan.explain(name))
    assert plan.launches == plan.xla_launches == 1
