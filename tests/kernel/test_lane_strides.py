"""Strides that the text hides from a host's compiler: which, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from jax_stitch.emit.cpp import kernel as cpp_kernel
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.lane_strides import hide_strides
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes

KERNEL = """
kernel name=k {{
  inputs {{
    buffer name=in0 dtype=f32 dims=[32, {stride}]
  }}
  outputs {{
    buffer name=out0 dtype=f32 dims=[32]
  }}
  parts {{
    part name=part_0 wide=false {{
      shape {{
        {shape}
      }}
      parameters {{
        parameter name=a dtype=f32 size={size} written=false
        parameter name=c dtype=f32 size=32 written=true
      }}
      body {{
        {loop}
            let x: f32 = {value}
            c[{lane}] = x
        {end}
      }}
    }}
  }}
  phases {{
    phase {{
      call part=0 first=0 last=1 arguments=[in0, out0]
    }}
  }}
  launch {{
    launch blocks=1 threads=1 shared_bytes=64 cluster=1 together=none resident=false last_block_from=1
  }}
}}
"""

TEAM = {
    "shape": "team_shape rows=1 threads=1 spread=false",
    "loop": "items run=serial(run, 1) lane=lane(j, 32) {\n          body {",
    "end": "}\n        }",
    "lane": "j",
}
ROWS = {
    "shape": "row_shape rows=32 period=32 rows_per_block=32 lanes=1 lanes_fastest=false sequence=1",
    "loop": "rows {",
    "end": "}",
    "lane": "row",
}


def kernel(stride: int, used: int = 1, of: dict[str, str] = TEAM) -> Kernel:
    """Return a kernel that adds up ``used`` neighbours of elements that are ``stride`` apart along the lanes."""
    lane = of["lane"]
    value = f"a[{lane} * {stride}]"
    for k in range(1, used):
        value = f"add({value}, a[{lane} * {stride} + {k}])"
    made = parse(KERNEL.format(value=value, stride=stride, size=32 * stride, **of))
    assert not verify(made)
    return made


def hidden(made: Kernel) -> set[int]:
    return {n.hidden for part in made.parts for s in part.body for n in nodes(s) if isinstance(n, Element)} - {0}


@pytest.mark.parametrize("of", [TEAM, ROWS], ids=["team", "rows"])
@pytest.mark.parametrize(
    ("stride", "used", "is_hidden"),
    [(1, 1, False), (4, 1, False), (5, 5, True), (8, 2, True), (8, 8, False), (16, 8, True), (16, 16, False)]
    + [(32, 32, True), (256, 8, True)],
)
def test_what_is_faster_one_by_one_is_hidden(stride: int, used: int, is_hidden: bool, of: dict[str, str]) -> None:
    made = hide_strides(kernel(stride, used, of))
    assert hidden(made) == ({stride} if is_hidden else set())
    assert (f"ST_SPACED({stride})" in cpp_kernel.text(made)) == is_hidden


def test_the_text_says_so_and_is_read_again() -> None:
    before, after = kernel(256), hide_strides(kernel(256))
    assert text(after) == text(before).replace("a[j * 256]", "a[j * 256 hiding 256]")
    assert parse(text(after)) == after
    assert "a[j * spaced_256]" in cpp_kernel.text(after)


def test_a_stride_of_an_outer_loop_is_known() -> None:
    """Only what lies apart along the lanes: a row's distance from the next is part of one address for all lanes."""
    serial = {**TEAM, "loop": "items run=serial(run, 32) lane=lane(j, 1) {\n          body {", "lane": "run"}
    made = kernel(256, 1, serial)
    assert hide_strides(made) == made


def test_results_are_the_same() -> None:
    a = np.arange(32 * 256, dtype=np.float32).reshape(32, 256)
    before, after = kernel(256, 8), hide_strides(kernel(256, 8))
    (first,), (second,) = (interpret(made, [a]) for made in (before, after))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, a[:, :8].sum(1))
