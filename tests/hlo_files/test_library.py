"""cuBLAS's and cuDNN's calls, as XLA makes them for a described H200, are products and convolutions again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, plan_hlo, stitch_hlo
from jax_stitch.frontend.capture import lower
from jax_stitch.graph.rewrites.library_calls import restored

RNG = np.random.default_rng(0)
NUMBERS = ("NHWC", "HWIO", "NHWC")


def _products(x: Any, w: Any, b: Any, c: Any) -> Any:
    small = x.reshape(2, 32, 32)
    return (
        jax.nn.relu(x @ w + b),
        jax.nn.gelu(x @ w, approximate=True),
        x @ w,
        (x.T @ x) * 2.0 + c,
        jnp.einsum("bij,bjk->bik", small, small),
    )


def _convolved(stride: int, dilation: int, padding: str) -> Callable[..., Any]:
    def fun(x: Any, w: Any, b: Any) -> Any:
        options = {"rhs_dilation": (dilation, dilation), "dimension_numbers": NUMBERS}
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (stride, stride), padding, **options) + b)

    return fun


def _gradients(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jax.grad(lambda *a: (fun(*a) ** 2).sum(), (0, 1, 2))(*args)


CONVOLUTIONS = [(1, 1, "SAME"), (2, 1, "SAME"), (3, 2, "VALID")]
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "products": (_products, ((64, 32), (32, 128), (128,), (32, 32)), "__cublas$"),
    **{
        f"convolution {stride} {dilation} {padding}": (
            _gradients(_convolved(stride, dilation, padding)),
            ((2, 14, 13, 8), (3, 3, 8, 16), (16,)),
            "__cudnn$conv",
        )
        for stride, dilation, padding in CONVOLUTIONS
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_calls_are_plain_operations_again(name: str) -> None:
    """Catches epilogues left out or in another order, and gradients under the wrong window or dimensions."""
    fun, shapes, target = CASES[name]
    arrays = [RNG.standard_normal(s).astype(np.float32) * 0.3 for s in shapes]
    types = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    text = lower(fun, types, devices.get("h200")).text({"xla_gpu_enable_triton_gemm": False})
    assert target in text
    function = stitch_hlo(text, strict=True)  # A CPU has neither library.
    expected = jax.tree.leaves(jax.jit(fun)(*arrays))
    for call in (function, function.plain):
        for found, wanted in zip(jax.tree.leaves(call(*arrays)), expected, strict=True):
            scale = float(np.max(np.abs(wanted)))
            np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-6)
    plan = plan_hlo(text, "h200")
    assert plan.unstitched is None
    assert any(k.library for k in plan.xla_traffic.kernels)


@pytest.mark.parametrize("precision", ["highest", "high", "TF32_TF32_F32"])
@pytest.mark.parametrize("name", CASES)
def test_they_round_as_the_calls_did(name: str, precision: str) -> None:
    """Catches products of float32 that a GPU multiplies in the 10 bits of TF32 where the call multiplied all 23."""
    fun, shapes, target = CASES[name]
    types = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    with jax.default_matmul_precision(precision):
        text = lower(fun, types, devices.get("h200")).text({"xla_gpu_enable_triton_gemm": False})
    assert target in text
    wanted = {("operand_precision", (precision,) * 2)}
    if precision.startswith("TF32"):  # Of convolutions XLA takes no algorithm.
        wanted = {("algorithm", "dot_tf32_tf32_f32")} if "cublas" in target else set()
    said = [
        {(k, v) for k, v in i.attributes.items() if k in ("operand_precision", "algorithm")}
        for c in restored(hlo_parser.parse(text)).computations
        for i in c
        if i.opcode in ("dot", "convolution")
    ]
    assert said and all(found == wanted for found in said)
    if precision == "highest":
        function = stitch_hlo(text, strict=True)
        lines = jax.jit(function.plain).lower(*types).as_text().splitlines()
        products = [line for line in lines if "dot_general" in line or "stablehlo.convolution" in line]
        assert products and all(line.count("HIGHEST") == 2 for line in products)


def test_calls_that_are_not_understood_stay() -> None:
    """Catches a call with scaling factors of f8, or another epilogue, taken for a plain product."""
    call = """HloModule m, is_scheduled=true
ENTRY e {
  x = f32[4,4]{1,0} parameter(0)
  c = (f32[4,4]{1,0}, s8[64]{0}) custom-call(x, x), custom_call_target="__cublas$lt$matmul", backend_config=CONFIG
  ROOT y = f32[4,4]{1,0} get-tuple-element(c), index=INDEX
}
"""
    config = (
        '{"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
        '"rhs_contracting_dimensions":["0"]},"epilogue":"DEFAULT"}}'
    )
    module = hlo_parser.parse(call.replace("CONFIG", config).replace("INDEX", "0"))
    assert "custom-call" not in str(restored(module)) and hlo_parser.verify(restored(module)) == []
    for wrong in (config.replace("DEFAULT", "D_SWISH"), config.replace('"beta":0', '"beta":1'), '"none"'):
        odd = hlo_parser.parse(call.replace("CONFIG", wrong).replace("INDEX", "0"))
        assert restored(odd) == odd
    other = call.replace("ROOT y = f32[4,4]{1,0}", "ROOT y = s8[64]{0}")
    scratch = hlo_parser.parse(other.replace("CONFIG", config).replace("INDEX", "1"))
    assert restored(scratch) == scratch
