"""Products by tensor cores: the text before and after, skewed rows, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_parser import ELEMENT_TYPES
from jax_stitch.kernel.fragment_products import fragment_products
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.skewed_rows import Access, conflicts, skewed_rows
from jax_stitch.kernel.text import text
from jax_stitch.kernel.verify import verify
from jax_stitch.util.values import replace

PRODUCT = """
kernel name=k {
  inputs {
    buffer name=in0 dtype=DTYPE dims=[32, 64]
    buffer name=in1 dtype=DTYPE dims=[32, 64]
  }
  outputs {
    buffer name=out0 dtype=f32 dims=[32, 32]
  }
  parts {
    part name=part_0 wide=false {
      shape {
        team_shape rows=1 threads=64 spread=false
      }
      parameters {
        parameter name=a dtype=DTYPE size=2048 written=false
        parameter name=b dtype=DTYPE size=2048 written=false
        parameter name=c dtype=f32 size=1024 written=true
      }
      before {
        allocate name=left dtype=DTYPE space=team size=2048 in_memory=STORED
        allocate name=right dtype=DTYPE space=team size=2048 offset=8192 in_memory=STORED
      }
      body {
        items run=serial(run, 32) lane=lane(j, 64) {
          body {
            left[j + run * 64] = a[j + run * 64]
            right[j + run * 64] = b[j + run * 64]
          }
        }
        barrier
        sums run=serial(run, 32) lane=lane(j, 32) split=1 width=16 fragments=[1, 2] {
          sums {
            sum name=s0 combiner="" dtype=f32 first=0.0:f32
          }
          steps {
            steps term=serial(q, 64) {
              body {
                let x: DTYPE = left[run * 64 + q]
                let y: DTYPE = right[j * 64 + q]
                let z: DTYPE = ROUNDED
                s0 = fused:f32(TERMS, s0)
              }
            }
          }
          finish {
            c[j + run * 32] = s0
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
    launch blocks=1 threads=64 shared_bytes=16384 cluster=1 together=none resident=false last_block_from=1
  }
}
"""
ROUNDED = "reduce_precision(y, exponent_bits=8, mantissa_bits=BITS)"


def product(dtype: str = "f32", rounded: str = ROUNDED, terms: str = "x, z") -> Kernel:
    """Return a kernel that multiplies two matrices, the second one rounded."""
    made = PRODUCT.replace("TERMS", terms).replace("ROUNDED", rounded)
    made = made.replace("BITS", "10" if dtype == "f32" else "7").replace("DTYPE", dtype)
    return parse(made.replace("STORED", "false" if dtype == "f32" else "true"))


def test_products_become_intrinsics() -> None:
    """Catches factors that are left as names: each is computed where a thread reads its share of a fragment."""
    after = fragment_products(product())
    assert (
        "multiply cells=[s0] sizes=[1, 1, 0, 0] operands=[left[run * 64 + q], "
        "reduce_precision(right[j * 64 + q], exponent_bits=8, mantissa_bits=10)]"
    ) in text(after)
    assert parse(text(after)) == after and not verify(product()) and not verify(after)


def test_halves_side_by_side_are_read_in_pairs() -> None:
    """Rounded to what they are already, they are taken as they lie."""
    after = fragment_products(product("bf16"))
    assert "sizes=[1, 1, 1, 1] operands=[left[run * 64 + q], right[j * 64 + q]]" in text(after)


def test_halves_from_an_odd_place_on_are_read_one_by_one() -> None:
    odd = parse(text(product("bf16")).replace("left[run * 64 + q]", "left[run * 63 + q]"))
    assert "sizes=[1, 1, 0, 1]" in text(fragment_products(odd))


@pytest.mark.parametrize("terms", ["y, z", "x, x"])
def test_factors_of_the_same_places_are_no_fragments(terms: str) -> None:
    """Catches products that would be taken for those of other elements."""
    after = fragment_products(product(terms=terms))
    assert "fragments" not in text(after) and "multiply cells" not in text(after)


def test_rows_are_skewed_against_conflicts() -> None:
    after = skewed_rows(fragment_products(product()))
    assert "left[run * 64 + (q + run * 4 % 64)]" in text(after)
    assert "right[run * 64 + (j + run * 4 % 64)] = b[j + run * 64]" in text(after)
    assert not verify(after)
    assert conflicts(Access(64, 1, 64)) == 8 and conflicts(Access(64, 1, 64), 4) == 1
    assert conflicts(Access(1, 64, 64)) == 4 and conflicts(Access(1, 64, 64), 8) == 1


def test_rows_that_begin_in_other_banks_stay() -> None:
    uneven = parse(text(product()).replace("* 64 + q]", "* 60 + q]"))
    assert skewed_rows(fragment_products(uneven)) == fragment_products(uneven)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_interpreter_finds_the_same(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (np.round(rng.standard_normal((32, 64)) * 64).astype(np.float32) / 64 for _ in range(2))
    kernel = product(dtype)
    arrays = [x.astype(ELEMENT_TYPES[dtype].numpy) for x in (a, b)]
    expected = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64).T
    for made in (kernel, fragment_products(kernel), skewed_rows(fragment_products(kernel))):
        (got,) = interpret(made, arrays)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-4)


def test_arrays_of_another_part_are_others() -> None:
    """Catches floats that are read as pairs of halves, since another part has halves under the same name."""
    halves, floats = product("bf16"), product()
    both = replace(halves, parts=(*halves.parts, *floats.parts))
    of_halves, of_floats = (text(replace(halves, parts=(p,))) for p in fragment_products(both).parts)
    assert "sizes=[1, 1, 1, 1]" in of_halves
    assert "sizes=[1, 1, 0, 0]" in of_floats
