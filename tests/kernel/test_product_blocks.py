"""Products that keep their sums in registers: the text before and after, and the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jax_stitch.kernel import statements as st
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.product_blocks import product_blocks
from jax_stitch.kernel.text import text
from jax_stitch.kernel.threads import How
from jax_stitch.kernel.verify import verify
from jax_stitch.kernel.walk import nodes
from tests.kernel.programs import kernels

PRODUCT = """
kernel name=k {
  inputs {
    buffer name=in0 dtype=f32 dims=[%(rows)d, 9]
    buffer name=in1 dtype=f32 dims=[9, 16]
  }
  outputs {
    buffer name=out0 dtype=f32 dims=[%(rows)d, 16]
  }
  parts {
    part name=part_0 wide=false {
      shape {
        team_shape rows=1 threads=1 spread=false
      }
      parameters {
        parameter name=a dtype=f32 size=%(left)d written=false
        parameter name=b dtype=f32 size=144 written=false
        parameter name=c dtype=f32 size=%(size)d written=true
      }
      body {
        sums run=serial(run, 1) lane=lane(j, 16) split=1 width=8 {
          sums {
%(sums)s
          }
          steps {
            steps term=serial(q, 9) {
              body {
%(steps)s
              }
            }
          }
          finish {
%(finish)s
          }
        }
      }
    }
  }
  phases {
    phase {
      call part=0 first=0 last=1 arguments=[in0, in1, out0]
    }
  }
  launch {
    launch blocks=1 threads=1 shared_bytes=64 cluster=1 together=none resident=false last_block_from=1
  }
}
"""


def product(rows: int, step: str = "") -> Kernel:
    """Return a product of ``rows`` rows with a matrix of 16 columns, 9 terms each."""
    each = range(rows)
    lines = {
        "sums": [f'sum name=s{r} combiner="" dtype=f32 first=0.0:f32' for r in each],
        "steps": ["let w: f32 = b[j + q * 16]", *(f"s{r} = fused:f32(a[q + {9 * r}], w, s{r})" for r in each), step],
        "finish": [f"c[j + {16 * r}] = s{r}" for r in each],
    }
    written = {name: "\n".join(of) for name, of in lines.items()}
    return parse(PRODUCT % {"rows": rows, "left": 9 * rows, "size": 16 * rows, **written})


def blocks(kernel: Kernel) -> list[st.Apply]:
    return [n for n in nodes(kernel) if isinstance(n, st.Apply) and n.intrinsic.startswith("multiply")]


def test_three_rows_are_one_block() -> None:
    before = product(3)
    after = product_blocks(before)
    (steps,) = (n for n in nodes(after) if isinstance(n, st.Steps))
    assert steps.term.how is How.REGISTERS
    lefts = "a[q], a[q + 9], a[q + 18]"
    assert f"multiply_from_zero cells=[s0, s1, s2] sizes=[3, 1] operands=[{lefts}, b[j + q * 16]]" in text(after)
    assert all(n.first is None for n in nodes(after) if isinstance(n, st.Sum))
    assert parse(text(after)) == after and not verify(before) and not verify(after)


def test_blocks_have_at_most_eight_rows_of_equal_number() -> None:
    assert [len(b.cells) for b in blocks(product_blocks(product(17)))] == [6, 6, 5]


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_the_interpreter_finds_the_same(rows: int) -> None:
    rng = np.random.default_rng(rows)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 9), (9, 16))]
    before = product(rows)
    (got,), (want,) = interpret(product_blocks(before), arguments), interpret(before, arguments)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got, arguments[0].astype(np.float64) @ arguments[1], rtol=1e-5, atol=1e-5)


def test_steps_that_do_something_else_stay() -> None:
    """A sum that is read between is not in a register alone."""
    before = product(2, step="s0 = add(s0, s1)")
    assert product_blocks(before) == before


def edited(kernel: Kernel, **changes: Any) -> Kernel:
    """Return a kernel with its first block changed, as text: what ``old`` says becomes ``new``."""
    return parse(text(product_blocks(kernel)).replace(changes["old"], changes["new"]))


FAULTS = {
    "a read past the end": ("a[q + 18]", "a[q + 19]"),
    "a sum that is not declared": ("cells=[s0, s1, s2]", "cells=[s0, s1, s9]"),
    "a sum without a value": ("multiply_from_zero", "multiply"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(name: str) -> None:
    old, new = FAULTS[name]
    assert verify(edited(product(3), old=old, new=new))


PROGRAMS = ("lstm", "gru", "logistic regression")


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_programs_are_in_blocks(name: str) -> None:
    made = [product_blocks(k) for k in kernels(name, "cpu")]
    assert any(map(blocks, made))
    assert not [f for k in made for f in verify(k)]
