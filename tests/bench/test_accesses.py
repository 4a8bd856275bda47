"""The accesses of a kernel are counted by what they move."""

from __future__ import annotations

from bench.accesses import Accesses, table, widths_of

PTX = """
	ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	ld.global.v2.u64 	{%rd7, %rd8}, [%rd1+16];
	st.global.v4.b16 	[%rd2], {%rs1, %rs2, %rs3, %rs4};
	st.global.f32 	[%rd3], %f5;
	@%p1 ld.global.nc.u8 	%rs9, [%rd4];
	ld.shared.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	ld.volatile.global.u32 	%r1, [%rd5];
"""


def test_by_their_bits() -> None:
    """Vectors of narrow elements count as what they are together, and shared memory does not."""
    assert widths_of(PTX) == {128: 2, 64: 1, 32: 1, 8: 1}


def test_a_line_for_each_kernel() -> None:
    row = Accesses("momentum", (12, 768), "stitch_0_add", {128: 20, 32: 10}, 3.6e-4, 3.0e-4)
    assert "| momentum [12 x 768] | stitch_0_add | 20 | - | 10 | - | - | 360.0 us | 1.20 |" in table([row])
