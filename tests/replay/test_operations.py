"""Operations with attributes that JAX's own functions never give them, against XLA on the same text."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import hlo_parser
from hlo_parser import ELEMENT_TYPES
from jax_stitch import graph
from jax_stitch.frontend import replay
from tests.replay import xla

_SCALARS = """
%less (a: f32[], b: f32[], i: s32[], j: s32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %i = s32[] parameter(2)
  %j = s32[] parameter(3)
  %s = f32[] abs(%a)
  %t = f32[] abs(%b)
  ROOT %l = pred[] compare(%s, %t), direction=GT
}
%odd (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  %two = f32[] constant(2)
  %d = f32[] multiply(%p, %two)
  ROOT %r = f32[] subtract(%d, %q)
}
%sum (p.1: f32[], q.1: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  %q.1 = f32[] parameter(1)
  ROOT %r.1 = f32[] add(%p.1, %q.1)
}
%ge (p.2: f32[], q.2: f32[]) -> pred[] {
  %p.2 = f32[] parameter(0)
  %q.2 = f32[] parameter(1)
  ROOT %r.2 = pred[] compare(%p.2, %q.2), direction=GE
}
%two_sums (a.3: f32[], b.3: s32[], c.3: f32[], d.3: s32[]) -> (f32[], s32[]) {
  %a.3 = f32[] parameter(0)
  %b.3 = s32[] parameter(1)
  %c.3 = f32[] parameter(2)
  %d.3 = s32[] parameter(3)
  %e.3 = f32[] maximum(%a.3, %c.3)
  %f.3 = s32[] add(%b.3, %d.3)
  ROOT %t.3 = (f32[], s32[]) tuple(%e.3, %f.3)
}
"""

SNIPPETS = {
    "compare in total order": """
  %x = f32[9]{0} parameter(0)
  %y = f32[9]{0} parameter(1)
  %a = pred[9]{0} compare(%x, %y), direction=LT, type=TOTALORDER
  %b = pred[9]{0} compare(%x, %y), direction=EQ, type=TOTALORDER
  %c = pred[9]{0} compare(%x, %y), direction=NE
  ROOT %t = (pred[9]{0}, pred[9]{0}, pred[9]{0}) tuple(%a, %b, %c)""",
    "power of integers": """
  %x = s32[6]{0} parameter(0)
  %y = s32[6]{0} parameter(1)
  ROOT %p = s32[6]{0} power(%x, %y)""",
    "arithmetic with pred": """
  %x = pred[7]{0} parameter(0)
  %y = pred[7]{0} parameter(1)
  %a = pred[7]{0} maximum(%x, %y)
  %b = pred[7]{0} minimum(%x, %y)
  %c = pred[7]{0} multiply(%x, %y)
  %d = pred[7]{0} add(%x, %y)
  ROOT %t = (pred[7]{0}, pred[7]{0}, pred[7]{0}, pred[7]{0}) tuple(%a, %b, %c, %d)""",
    "parts of a complex number": """
  %x = f32[5]{0} parameter(0)
  %y = f32[5]{0} parameter(1)
  %z = c64[5]{0} complex(%x, %y)
  %a = f32[5]{0} abs(%z)
  %i = f32[5]{0} imag(%z)
  %c = f32[5]{0} convert(%z)
  ROOT %t = (f32[5]{0}, f32[5]{0}, f32[5]{0}) tuple(%a, %i, %c)""",
    "scalar select and clamp": """
  %p = pred[] parameter(0)
  %x = f32[5]{0} parameter(1)
  %y = f32[5]{0} parameter(2)
  %lo = f32[] constant(-0.25)
  %hi = f32[] constant(0.5)
  %s = f32[5]{0} clamp(%lo, %x, %hi)
  %b = pred[5]{0} broadcast(%p), dimensions={}
  ROOT %t = f32[5]{0} select(%b, %s, %y)""",
    "starts out of range": """
  %x = f32[4,6]{1,0} parameter(0)
  %i = s64[] parameter(1)
  %j = s64[] parameter(2)
  %s = f32[2,3]{1,0} dynamic-slice(%x, %i, %j), dynamic_slice_sizes={2,3}
  ROOT %u = f32[4,6]{1,0} dynamic-update-slice(%x, %s, %j, %i)""",
    "gather with the index vector first": """
  %x = f32[5,6]{1,0} parameter(0)
  %i = s32[2,7]{1,0} parameter(1)
  ROOT %g = f32[7,2]{1,0} gather(%x, %i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,2}""",  # noqa: E501
    "gather without an index vector": """
  %x = f32[5,6]{1,0} parameter(0)
  %i = s32[2,7]{1,0} parameter(1)
  ROOT %g = f32[2,7,6]{2,1,0} gather(%x, %i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,6}""",  # noqa: E501
    "scatter with a combiner of its own": """
  %x = f32[5,6]{1,0} parameter(0)
  %i = s32[3,1]{1,0} parameter(1)
  %u = f32[3,6]{1,0} parameter(2)
  ROOT %s = f32[5,6]{1,0} scatter(%x, %i, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%odd""",  # noqa: E501
    "scatter of two arrays": """
  %x = f32[5]{0} parameter(0)
  %n = s32[5]{0} parameter(1)
  %i = s32[3,1]{1,0} parameter(2)
  %u = f32[3]{0} parameter(3)
  %m = s32[3]{0} parameter(4)
  ROOT %s = (f32[5]{0}, s32[5]{0}) scatter(%x, %n, %i, %u, %m), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%two_sums""",  # noqa: E501
    "sort by magnitude, descending": """
  %x = f32[4,9]{1,0} parameter(0)
  %i = s32[4,9]{1,0} parameter(1)
  ROOT %s = (f32[4,9]{1,0}, s32[4,9]{1,0}) sort(%x, %i), dimensions={0}, is_stable=true, to_apply=%less""",
    "reduce two arrays": """
  %x = f32[4,9,2]{2,1,0} parameter(0)
  %i = s32[4,9,2]{2,1,0} parameter(1)
  %a = f32[] constant(-9)
  %b = s32[] constant(0)
  ROOT %s = (f32[9]{0}, s32[9]{0}) reduce(%x, %i, %a, %b), dimensions={0,2}, to_apply=%two_sums""",
    "windows over two arrays": """
  %x = f32[9,5]{1,0} parameter(0)
  %i = s32[9,5]{1,0} parameter(1)
  %a = f32[] constant(-9)
  %b = s32[] constant(0)
  ROOT %s = (f32[5,5]{1,0}, s32[5,5]{1,0}) reduce-window(%x, %i, %a, %b), window={size=3x1 stride=2x1 pad=1_1x0_0}, to_apply=%two_sums""",  # noqa: E501
    "select and scatter": """
  %x = f32[9,6]{1,0} parameter(0)
  %s = f32[4,3]{1,0} parameter(1)
  %z = f32[] constant(0.5)
  ROOT %r = f32[9,6]{1,0} select-and-scatter(%x, %s, %z), window={size=3x2 stride=2x2}, select=%ge, scatter=%sum""",
    "convolution with a reversed kernel": """
  %x = f32[2,9,8,3]{3,2,1,0} parameter(0)
  %w = f32[3,2,3,4]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,7,6,4]{3,2,1,0} convolution(%x, %w), window={size=3x2 stride=2x1 pad=3_4x-1_0 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f""",  # noqa: E501
    "convolution in odd order": """
  %x = f32[3,9,2,8]{3,2,1,0} parameter(0)
  %w = f32[4,3,3,2]{3,2,1,0} parameter(1)
  ROOT %c = f32[4,7,7,2]{3,2,1,0} convolution(%x, %w), window={size=3x2}, dim_labels=f0b1_oi01->f01b""",
    "convolution without windows": """
  %x = f32[5,3]{1,0} parameter(0)
  %w = f32[3,4]{1,0} parameter(1)
  ROOT %c = f32[5,4]{1,0} convolution(%x, %w), dim_labels=bf_io->bf""",
    "convolution of two types": """
  %x = bf16[2,9,3]{2,1,0} parameter(0)
  %w = f32[3,3,4]{2,1,0} parameter(1)
  ROOT %c = f32[2,7,4]{2,1,0} convolution(%x, %w), window={size=3}, dim_labels=b0f_0io->b0f""",
    "convolution of integers of two types": """
  %x = s8[2,9,3]{2,1,0} parameter(0)
  %w = s16[3,3,4]{2,1,0} parameter(1)
  ROOT %c = s32[2,7,4]{2,1,0} convolution(%x, %w), window={size=3}, dim_labels=b0f_0io->b0f""",
    "broadcast without dimensions": """
  %x = f32[] parameter(0)
  ROOT %b = f32[3,4]{1,0} broadcast(%x)""",
    "triangular solve, from the right, transposed": """
  %a = f32[2,4,4]{2,1,0} parameter(0)
  %b = f32[2,3,4]{2,1,0} parameter(1)
  ROOT %s = f32[2,3,4]{2,1,0} triangular-solve(%a, %b), lower=true, unit_diagonal=true, transpose_a=TRANSPOSE""",
    "cholesky": """
  %x = f32[2,4,4]{2,1,0} parameter(0)
  %xx = f32[2,4,4]{2,1,0} dot(%x, %x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  ROOT %c = f32[2,4,4]{2,1,0} cholesky(%xx), lower=true""",  # noqa: E501
    "fft": """
  %x = f32[3,8]{1,0} parameter(0)
  %f = c64[3,5]{1,0} fft(%x), fft_type=RFFT, fft_length={8}
  ROOT %b = f32[3,8]{1,0} fft(%f), fft_type=IRFFT, fft_length={8}""",
    "dot with precision and two batches": """
  %x = f32[2,3,4,5]{3,2,1,0} parameter(0)
  %y = f32[3,5,2,6]{3,2,1,0} parameter(1)
  ROOT %d = f32[2,3,4,6]{3,2,1,0} dot(%x, %y), lhs_batch_dims={0,1}, rhs_batch_dims={2,0}, lhs_contracting_dims={3}, rhs_contracting_dims={1}, operand_precision={highest,highest}""",  # noqa: E501
    "dot by an algorithm": """
  %x = f32[4,5]{1,0} parameter(0)
  %y = f32[5,6]{1,0} parameter(1)
  ROOT %d = f32[4,6]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x3""",  # noqa: E501
    "64 bits where JAX has 32": """
  %i = u64[8]{0} iota(), iota_dimension=0
  %c = u64[] constant(12297829382473034411)
  %b = u64[8]{0} broadcast(%c), dimensions={}
  %m = u64[8]{0} multiply(%i, %b)
  %k = u64[] constant(32)
  %l = u64[8]{0} broadcast(%k), dimensions={}
  %h = u64[8]{0} shift-right-logical(%m, %l)
  %u = u32[8]{0} convert(%h)
  %f = f64[8]{0} convert(%m)
  %q = f64[8]{0} sqrt(%f)
  ROOT %t = (u32[8]{0}, u64[8]{0}, f64[8]{0}) tuple(%u, %m, %q)""",
    "device numbers": """
  %p = u32[] partition-id()
  %r = u32[] replica-id()
  ROOT %t = (u32[], u32[]) tuple(%p, %r)""",
    "odd shapes": """
  %x = f32[0,3]{1,0} parameter(0)
  %z = f32[] constant(2)
  %r = f32[3]{0} reduce(%x, %z), dimensions={0}, to_apply=%sum
  %p = f32[4,3]{1,0} pad(%x, %z), padding=1_3x0_0
  ROOT %t = (f32[3]{0}, f32[4,3]{1,0}, f32[0,3]{1,0}) tuple(%r, %p, %x)""",
}


def arguments(module: hlo_parser.Module) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    found = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        assert isinstance(shape, hlo_parser.ArrayShape)
        dtype = ELEMENT_TYPES[shape.dtype].numpy
        if shape.dtype[0] == "f":
            value = rng.standard_normal(shape.dims).astype(dtype)
            if value.ndim == 1 and value.size > 7:
                value[:7] = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40][:: rng.choice([1, -1])]
        else:
            value = rng.integers(0, 2, shape.dims) if shape.dtype == "pred" else rng.integers(-2, 7, shape.dims)
        found.append(np.asarray(value).astype(dtype))
    return found


@pytest.mark.parametrize("name", SNIPPETS)
def test_same_as_xla(name: str) -> None:
    used = set(re.findall(r"(?:to_apply|select|scatter)=(%\w+)", SNIPPETS[name]))
    computations = "".join(c + "}\n" for c in _SCALARS.split("}\n") if any(c.strip().startswith(f"{u} ") for u in used))
    text = f"HloModule test\n{computations}\nENTRY %main {{{SNIPPETS[name]}\n}}\n"
    module = hlo_parser.parse(text)
    flat = graph.flatten(module)
    graph.verify(flat)
    assert replay.unsupported(flat) == []
    inputs = arguments(module)
    want = xla.run(text, inputs)
    got = _jitted(flat, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(np.asarray(g), w, rtol=2e-6, atol=2e-6)


def _jitted(flat: graph.Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with jax.enable_x64(any(a.dtype.itemsize == 8 for a in inputs)):
        return [np.asarray(v) for v in jax.jit(replay.replay(replay.StitchedGraph(flat)))(inputs)]


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_powers_and_logarithms_to_the_base_2(dtype: str) -> None:
    """Catches a base other than 2, or a function of ``jax.lax`` that some version lacks: XLA reads these operations and
    can compile neither, so that NumPy stands in for it.
    """
    text = f"""HloModule test
ENTRY %main {{
  %x = {dtype}[5]{{0}} parameter(0)
  %p = {dtype}[5]{{0}} exp2(%x)
  %l = {dtype}[5]{{0}} log2(%x)
  ROOT %t = ({dtype}[5]{{0}}, {dtype}[5]{{0}}) tuple(%p, %l)
}}
"""
    flat = graph.flatten(hlo_parser.parse(text))
    assert replay.unsupported(flat) == []
    x = np.array([0.125, 0.7, 1, 3, 8], ELEMENT_TYPES[dtype].numpy)
    for got, want in zip(_jitted(flat, [x]), (np.exp2(x), np.log2(x)), strict=True):
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(x.dtype).eps)


def test_ragged_products() -> None:
    text = """HloModule test
ENTRY %main {
  %x = f32[6,4]{1,0} parameter(0)
  %y = f32[2,4,5]{2,1,0} parameter(1)
  %n = s32[2]{0} parameter(2)
  ROOT %r = f32[6,5]{1,0} ragged-dot(%x, %y, %n), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
}
"""  # noqa: E501
    flat = graph.flatten(hlo_parser.parse(text))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((2, 4, 5)).astype(np.float32)
    (got,) = _jitted(flat, [x, y, np.int32([2, 4])])
    np.testing.assert_allclose(got, np.concatenate([x[:2] @ y[0], x[2:] @ y[1]]), rtol=1e-5, atol=1e-6)
