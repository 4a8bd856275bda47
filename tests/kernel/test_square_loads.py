"""Loads across lanes in squares: the text before and after, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.square_loads import square_loads
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes

TRANSPOSED = """
kernel name=k {{
  inputs {{
    buffer name=in0 dtype={dtype} dims=[{lanes}, {runs}]
  }}
  outputs {{
    buffer name=out0 dtype={dtype} dims=[{runs}, {lanes}]
  }}
  parts {{
    part name=part_0 wide=false {{
      shape {{
        team_shape rows=1 threads={threads} spread=false
      }}
      parameters {{
        parameter name=a dtype={dtype} size={size} written=false
        parameter name=c dtype={dtype} size={size} written=true
      }}
      body {{
        items run=serial(run, {runs}) lane={how}(j, {lanes}){divided} {{
          body {{
            let x: {dtype} = a[{load}]
            let y: {dtype} = multiply(x, x)
            c[j + run * {lanes}] = y
          }}
        }}
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


def transposed(runs: int, lanes: int, **changes: str) -> Kernel:
    """Return a kernel that squares a matrix and transposes it."""
    usual = {"dtype": "f32", "threads": "1", "how": "lane", "divided": "", "load": f"run + j * {runs}"}
    written = {"runs": str(runs), "lanes": str(lanes), "size": str(runs * lanes)}
    return parse(TRANSPOSED.format(**{**usual, **written, **changes}))


def squares(kernel: Kernel) -> list[st.Square]:
    return [n for n in nodes(kernel) if isinstance(n, st.Square)]


def test_what_is_transposed_is_loaded_in_squares() -> None:
    before = transposed(90, 70)
    after = square_loads(before)
    assert "square name=x_across_ dtype=f32 element=a[run + j * 90]" in text(after)
    assert "let x: f32 = x_across_" in text(after)
    assert parse(text(after)) == after and not verify(before) and not verify(after)


@pytest.mark.parametrize(
    "changes",
    [
        {"load": "j + run * 70"},
        {"load": "run"},
        {"threads": "4"},
        {"how": "serial"},
        {"divided": " divided=true"},
    ],
    ids=["in order", "one for all lanes", "several threads", "serial", "shared with helpers"],
)
def test_other_sweeps_stay(changes: dict[str, str]) -> None:
    before = transposed(90, 70, **changes)
    assert square_loads(before) == before


def test_small_sweeps_stay() -> None:
    """Their lines are in the first cache until the next lane reads them."""
    before = transposed(30, 30)
    assert square_loads(before) == before


def test_small_floats_are_loaded_one_by_one() -> None:
    """They are computed with as f32: the sweep is in squares, but nothing is turned."""
    after = square_loads(transposed(90, 70, dtype="bf16"))
    assert not squares(after)


@pytest.mark.parametrize(("runs", "lanes"), [(64, 64), (90, 70), (17, 300)])
def test_the_interpreter_finds_the_same(runs: int, lanes: int) -> None:
    x = np.random.default_rng(0).standard_normal((lanes, runs)).astype(np.float32)
    (got,) = interpret(square_loads(transposed(runs, lanes)), [x])
    np.testing.assert_array_equal(got, (x * x).T)


def test_a_square_of_elements_past_the_end_is_refused() -> None:
    wrong = parse(text(square_loads(transposed(90, 70))).replace("a[run + j * 90]", "a[run + j * 90 + 1]"))
    assert verify(wrong)
