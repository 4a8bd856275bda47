"""HLO in which two operations call one computation: each call has its kernels, once."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices
from tests.fusion import forced

TWO_LOOPS = """HloModule shared

%goes (c: (s32[], f32[64,64])) -> pred[] {
  %c = (s32[], f32[64,64]) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%n, %three), direction=LT
}

%step (c: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %c = (s32[], f32[64,64]) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %x = f32[64,64] get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%n, %one)
  %s = f32[64,64] sine(%x)
  %f = c64[64,33] fft(%s), fft_type=RFFT, fft_length={64}
  %y = f32[64,64] fft(%f), fft_type=IRFFT, fft_length={64}
  %z = f32[64,64] cosine(%y)
  ROOT %t = (s32[], f32[64,64]) tuple(%next, %z)
}

ENTRY %main (a: f32[64,64], b: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %a = f32[64,64] parameter(0)
  %b = f32[64,64] parameter(1)
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %first = (s32[], f32[64,64]) tuple(%zero, %a)
  %second = (s32[], f32[64,64]) tuple(%one, %b)
  %v = (s32[], f32[64,64]) while(%first), condition=%goes, body=%step
  %w = (s32[], f32[64,64]) while(%second), condition=%goes, body=%step
  %p = f32[64,64] get-tuple-element(%v), index=1
  %q = f32[64,64] get-tuple-element(%w), index=1
  ROOT %t = (f32[64,64], f32[64,64]) tuple(%p, %q)
}
"""


@pytest.mark.parametrize("seed", range(3))
def test_two_loops_of_one_body(seed: int) -> None:
    hlo_parser.verify(hlo_parser.parse(TWO_LOOPS))
    kernels = forced.stitched(TWO_LOOPS, devices.get("h200"), seed)
    assert len(kernels.plan.children) == 4, "the loops are kernels"
    assert kernels.kernels, "nothing is in a kernel"
    rng = np.random.default_rng(0)
    a, b = (rng.random((64, 64)).astype(np.float32) / 8 for _ in range(2))

    def plain(x: np.ndarray, steps: int) -> np.ndarray:
        for _ in range(steps):
            x = np.cos(np.sin(x))
        return x

    found = kernels.compile("host")([jnp.array(a), jnp.array(b)])
    for got, want in zip(found, (plain(a, 3), plain(b, 2)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
