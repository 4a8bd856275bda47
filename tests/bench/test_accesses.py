"""The accesses of a kernel are counted by what they move."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from bench.accesses import Accesses, table
from bench.sass import disassembled, disassembler, widths_of
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.util.suggestion import UsageError
from tests.fusion import forced

X = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)


def _is_here() -> bool:
    try:
        disassembler()
    except UsageError:
        return False
    return True


SASS = """
        /*02c0*/              @!P0 LDG.E.128.CONSTANT R8, desc[UR6][R2.64] ;
        /*0430*/                   LDG.E.EF.128 R4, desc[UR6][R12.64+0x200000] ;
        /*0440*/                   LDG.E.64 R16, desc[UR6][R12.64] ;
        /*0450*/                   LDG.E.CONSTANT R3, desc[UR6][R12.64] ;
        /*0460*/                   LDG.E.U8.CONSTANT R3, desc[UR6][R12.64] ;
        /*0470*/                   STG.E.U16 desc[UR6][R2.64], R5 ;
        /*0480*/                   STG.E desc[UR6][R2.64], R5 ;
        /*0490*/                   LDG.E.STRONG.GPU R3, desc[UR6][R12.64] ;
        /*04a0*/                   LDS.128 R4, [R9+0x800] ;
        /*04b0*/                   LDGSTS.E.BYPASS.128 [R5], desc[UR6][R2.64] ;
"""


def test_by_their_bits() -> None:
    """Only loads and stores of global memory by threads count."""
    assert widths_of(SASS) == {128: 2, 64: 1, 32: 3, 16: 1, 8: 1}


@pytest.mark.skipif(not _is_here(), reason="no nvdisasm here: pip install nvidia-cuda-nvdisasm")
def test_of_a_kernel() -> None:
    (kernel,) = forced.stitched(forced.hlo_of(lambda x: jax.nn.softmax(x, 1), X), forced.device("h200")).kernels
    found = widths_of(disassembled(compile_ptx(kernel.source, "sm_90").cubin))
    assert found
    assert set(found) == {128}


def test_a_line_for_each_kernel() -> None:
    row = Accesses("momentum", (12, 768), "stitch_0_add", {128: 20, 32: 10}, 3.6e-4, 3.0e-4)
    assert "| momentum [12 x 768] | stitch_0_add | 20 | - | 10 | - | - | 360.0 us | 1.20 |" in table([row])
