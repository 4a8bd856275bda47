"""What the lanes of a loop have in common, before the loop: the text before and after, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.invariants import invariants_outside
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify

KERNEL = """
kernel name=k {{
  inputs {{
    buffer name=in0 dtype=f32 dims=[4]
    buffer name=in1 dtype=f32 dims=[4, 16]
  }}
  outputs {{
    buffer name=out0 dtype=f32 dims=[4, 16]
  }}
  parts {{
    part name=part_0 wide=false {{
      shape {{
        {shape}
      }}
      parameters {{
        parameter name=a dtype=f32 size=4 written=false
        parameter name=b dtype=f32 size=64 written=false
        parameter name=c dtype=f32 size=64 written=true
      }}
      body {{
{body}
      }}
    }}
  }}
  phases {{
    phase {{
      call part=0 first=0 last={blocks} arguments=[in0, in1, out0]
    }}
  }}
  launch {{
    launch blocks={blocks} threads=1 shared_bytes=64 cluster=1 together=none resident=false last_block_from=1
  }}
}}
"""

SWEEP = """
items run=serial(run, 4) lane=lane(j, 16) {
  body {
    let x: f32 = a[run]
    let n: f32 = tanh(x)
    let y: f32 = b[j + run * 16]
    let z: f32 = multiply(y, n)
    c[j + run * 16] = z
  }
}
"""

ROWS = """
rows {
  let x: f32 = a[batch]
  let n: f32 = tanh(x)
  let y: f32 = b[row + batch * 16]
  let z: f32 = multiply(y, n)
  c[row + batch * 16] = z
}
"""


def of_team(body: str = SWEEP, pieces: int = 1) -> Kernel:
    shape = f"team_shape rows=1 threads=1 spread=false{f' pieces={pieces}' if pieces > 1 else ''}"
    return checked(KERNEL.format(shape=shape, body=body, blocks=1))


def of_rows(body: str = ROWS) -> Kernel:
    shape = "row_shape rows=64 period=16 rows_per_block=16 lanes=1 lanes_fastest=false sequence=1"
    return checked(KERNEL.format(shape=shape, body=body, blocks=4))


def checked(written: str) -> Kernel:
    made = parse(written)
    assert not verify(made)
    return made


def body_of(made: Kernel) -> str:
    lines = text(made).splitlines()
    return " ".join(" ".join(lines[[x.strip() for x in lines].index("body {") + 1 :]).split())


@pytest.mark.parametrize("made", [of_team(), of_rows()], ids=["team", "rows"])
def test_what_lanes_have_in_common_is_before_them(made: Kernel) -> None:
    after = invariants_outside(made)
    assert not verify(after)
    assert parse(text(after)) == after
    a, b = np.linspace(-1, 1, 4, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(4, 16)
    (first,), (second,) = (interpret(m, [a, b]) for m in (made, after))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, b * np.tanh(a)[:, None], rtol=1e-6)
    before_lanes = body_of(after).split("items" if "items" in body_of(after) else "rows {")[0]
    assert "tanh" in before_lanes and "multiply" not in before_lanes
    assert ("a[outer]" if "items" in body_of(after) else "a[batch]") in before_lanes


@pytest.mark.parametrize(
    ("kept", "old", "new"),
    [
        ("only loads, which a compiler moves", "let n: f32 = tanh(x)", "let n: f32 = a[run]"),
        ("a number of the lane", "let x: f32 = a[run]", "let x: f32 = b[j]"),
        ("too few lanes", "lane(j, 16)", "lane(j, 4)"),
        ("lanes in turn", "lane=lane(j, 16)", "lane=serial(j, 16)"),
        ("what the lanes write", "let x: f32 = a[run]", "let x: f32 = c[run]"),
    ],
)
def test_what_stays(kept: str, old: str, new: str) -> None:
    assert old in SWEEP
    made = parse(text(of_team()).replace(old, new))
    assert invariants_outside(made) == made, kept


@pytest.mark.parametrize("made", [of_team(), of_rows()], ids=["team", "rows"])
def test_what_is_overwritten_as_it_is_read_stays(made: Kernel) -> None:
    """The verifier refused the kernel after the pass: layers after each other, with their residuals in place."""
    written = text(made).replace("size=64 written=false", "size=64 written=false in_place=true")
    over = parse(written.replace("size=64 written=true", "size=64 written=true in_place=true"))
    assert invariants_outside(made) != made and invariants_outside(over) == over


def test_what_helpers_share_stays() -> None:
    """Each of them would go through all runs."""
    made = of_team(pieces=2)
    assert invariants_outside(made) == made
