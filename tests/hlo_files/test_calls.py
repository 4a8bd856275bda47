"""Calls that XLA does not know are planned around."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_parser
from jax_stitch import plan_hlo, stitch_hlo

CALL = """HloModule m
ENTRY e {{
  p = f32[256,64]{{1,0}} parameter(0)
  x = f32[256,64]{{1,0}} exponential(p)
  a = {shape} custom-call(x{operands}), custom_call_target="foo"{more}
  {element}
  b = f32[256,64]{{1,0}} negate(y)
  c = f32[256,64]{{1,0}} tanh(b)
  ROOT r = (f32[256,64]{{1,0}}, f32[256,64]{{1,0}}) tuple(b, c)
}}
"""
LOOP = """HloModule m
called {{
  x = f32[256,64] parameter(0)
  ROOT y = f32[256,64] custom-call(x), custom_call_target="foo"{more}
}}
body {{
  q = (s32[], f32[256,64]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  x = f32[256,64] get-tuple-element(q), index=1
  one = s32[] constant(1)
  c = f32[256,64] call(x), to_apply=called
  n = f32[256,64] negate(c)
  t = f32[256,64] tanh(n)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[256,64]) tuple(j, t)
}}
cond {{
  q = (s32[], f32[256,64]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant(8)
  ROOT l = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  p = f32[256,64] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[256,64]) tuple(z, p)
  w = (s32[], f32[256,64]) while(t), condition=cond, body=body
  ROOT y = f32[256,64] get-tuple-element(w), index=1
}}
"""
ASYNC = """HloModule m
ENTRY e {
  p = f32[256,64] parameter(0)
  s = ((f32[256,64]), f32[256,64], u32[]) custom-call-start(p), custom_call_target="foo"
  d = f32[256,64] custom-call-done(s)
  ROOT b = f32[256,64] add(d, d)
}
"""


def one(shape: str = "f32[256,64]{1,0}", operands: str = "", more: str = "") -> str:
    element = "y = f32[256,64]{1,0} " + ("get-tuple-element(a), index=0" if shape[0] == "(" else "bitcast(a)")
    return CALL.format(shape=shape, operands=operands, more=more, element=element)


MODULES = {
    "by the first interface": one(),
    "that returns a status": one(more=', api_version=API_VERSION_STATUS_RETURNING, backend_config="a \\"b\\""'),
    "by the typed interface": one(more=", api_version=API_VERSION_TYPED_FFI, backend_config={a = 1 : i32}"),
    "with an effect": one(more=", custom_call_has_side_effect=true"),
    "in its operand's memory": one(more=", output_to_operand_aliasing={{}: (0, {})}"),
    "of several results": one("(f32[256,64]{1,0}, s32[7]{0})", ", p"),
    "that asks for layouts": one("f32[256,64]{1,0}", more=", operand_layout_constraints={f32[256,64]{0,1}}"),
    "in a loop": LOOP.format(more=""),
    "in a loop, with an effect": LOOP.format(more=", custom_call_has_side_effect=true"),
    "waited for": ASYNC,
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", MODULES)
def test_what_is_around_a_call_is_planned(name: str, device: str) -> None:
    """Catches a program that is refused for a call that XLA does not know, and a call that loses what it came with."""
    plan = plan_hlo(MODULES[name], device=device, optimize=False)
    assert plan.unstitched is None and 0 < plan.launches <= plan.xla_launches
    if "in a loop" not in name and name != "waited for":
        assert len(plan.kernels) == 1 and plan.kernels[0].ops == ("b", "c")
    before, after = (
        [i for c in hlo_parser.parse(text).computations for i in c if i.attributes.get("custom_call_target") == "foo"]
        for text in (MODULES[name], plan.stitched_hlo)
    )
    assert len(after) == len(before) == 1
    kept = ("api_version", "custom_call_has_side_effect", "output_to_operand_aliasing", "backend_config")
    for key in kept:
        assert str(after[0].attributes.get(key, "")) == str(before[0].attributes.get(key, "")), key
    if "operand_layout_constraints" in before[0].attributes:
        assert before[0].attributes["operand_layout_constraints"] == after[0].attributes["operand_layout_constraints"]
    if name != "waited for":
        assert hlo_parser.without_layout(before[0].shape) == hlo_parser.without_layout(after[0].shape)


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_call_before_xlas_passes(device: str) -> None:
    """Catches a compiler that refuses a program for a call that will never run."""
    plan = plan_hlo(one(), device=device, optimize=True)
    assert plan.unstitched is None and 0 < plan.launches <= plan.xla_launches


def test_a_call_with_an_effect_and_without_readers_stays() -> None:
    """Catches a call that is dropped since nobody reads its result."""
    unread = one(more=", custom_call_has_side_effect=true").replace("bitcast(a)", "bitcast(x)")
    assert '"foo"' in plan_hlo(unread, device="cpu", optimize=False).stitched_hlo


def test_a_call_with_an_effect_runs() -> None:
    """Catches an effect that JAX will not have in a stitched program."""
    text = """HloModule m
ENTRY e {
  p = f32[8,8]{1,0} parameter(0)
  x = f32[8,8]{0,1} copy(p)
  a = (f32[8,8]{0,1}, s32[]) custom-call(x), custom_call_target="lapack_spotrf_ffi",
    operand_layout_constraints={f32[8,8]{0,1}}, custom_call_has_side_effect=true,
    output_to_operand_aliasing={{0}: (0, {})}, api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
  y = f32[8,8]{0,1} get-tuple-element(a), index=0
  b = f32[8,8]{0,1} negate(y)
  ROOT c = f32[8,8]{1,0} copy(b)
}
"""
    function = stitch_hlo(text, mode="now", optimize=False)
    matrix = np.eye(8, dtype=np.float32) * 4
    np.testing.assert_allclose(np.tril(function(matrix)), -2 * np.eye(8), rtol=1e-6)
    np.testing.assert_allclose(function(matrix), function.plain(matrix), rtol=1e-6)
