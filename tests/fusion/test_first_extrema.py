"""``argmax`` and ``argmin`` on a CPU: an extremum, and the least index of what equals it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.graph.rewrites.extrema import with_extrema
from tests.fusion import forced

MODULE = """HloModule m

%pick (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {{
  %a = f32[] parameter(0)
  %i = s32[] parameter(1)
  %b = f32[] parameter(2)
  %j = s32[] parameter(3)
  %more = pred[] compare(%a, %b), direction={better}
  %nan = pred[] compare(%{nan}, %{nan}), direction=NE
  %first = pred[] or(%more, %nan)
  %value = f32[] select(%first, %{value})
  %same = pred[] compare(%a, %b), direction=EQ
  %before = pred[] compare(%i, %j), direction={before}
  %tie = pred[] and(%same, %before)
  %this = pred[] or(%first, %tie)
  %place = s32[] select(%this, %i, %j)
  ROOT %both = (f32[], s32[]) tuple(%value, %place)
}}

ENTRY %main {{
  %x = f32[4,8] parameter(0)
  %n = s32[4,8] {indices}
  %least = f32[] constant({least})
  %zero = s32[] constant({zero})
  %r = (f32[4], s32[4]) reduce(%x, %n, %least, %zero), dimensions={{1}}, to_apply=%pick
  %most = f32[4] get-tuple-element(%r), index=0
  %at = s32[4] get-tuple-element(%r), index=1
  ROOT %both = (f32[4], s32[4]) tuple(%most, %at)
}}
"""

USUAL = {
    "better": "GT",
    "nan": "a",
    "value": "a, %b",
    "before": "LT",
    "indices": "iota(), iota_dimension=1",
    "least": "-inf",
    "zero": "0",
}


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, True),
        ({"better": "LT", "least": "inf"}, True),
        ({"better": "LT"}, False),  # what it starts with is less than any
        ({"better": "GE"}, False),  # the last of equal ones
        ({"nan": "b"}, False),  # a number and no NaN
        ({"value": "b, %a"}, False),
        ({"before": "GT"}, False),  # the last
        ({"indices": "iota(), iota_dimension=0"}, False),
        ({"indices": "constant({...})"}, False),
        ({"least": "0"}, False),
        ({"zero": "3"}, False),
    ],
)
def test_what_is_no_argmax_stays(change: dict[str, str], taken: bool) -> None:
    """Catches a combiner, indices or an initial value that are taken for those of `argmax` and mean something else."""
    texts = {**USUAL, **change}
    texts["indices"] = texts["indices"].replace("{...}", "{" + ",".join(["{1,2,3,4,5,6,7,8}"] * 4) + "}")
    built = graph.build(hlo_parser.parse(MODULE.format(**texts)), {0: 0})
    made = with_extrema(built)
    assert sum(len(n.operands) == 4 for n in made.nodes if n.op == "reduce") == (0 if taken else 1)


@pytest.mark.parametrize("shape", [(512, 300), (300, 512)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_alone_it_is_a_kernel(shape: tuple[int, int], axis: int) -> None:
    """Catches a gain that is not counted: XLA has one kernel for it as well, which combines pairs one by one."""
    x = np.random.default_rng(0).integers(-40, 40, shape).astype(np.float32)
    x[3, 5], x[7, 1] = np.nan, np.inf
    fun = jax.jit(lambda x: jnp.argmax(x * 2, axis))
    made = forced.stitched(forced.hlo_of(fun, x), devices.get("zen3"))
    assert made.kernels
    np.testing.assert_array_equal(forced.run(made, [x])[0], np.argmax(x, axis))
