"""What is compiled for a capture: readable library calls, what would run, each described GPU by its own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_parser
from jax_stitch import devices, graph
from jax_stitch.frontend.capture import CaptureError, CudaPluginMissing, capture, compile_for, lower
from tests.capture.arguments import H200, needs_plugin, on_both, struct


@on_both
def test_source_lines_survive(device: devices.Device) -> None:
    def f(a: jax.Array) -> jax.Array:
        return jnp.tanh(a)

    module = hlo_parser.parse(capture(f, (struct(3),), device).text)
    frames = [
        module.stack_frame(i.metadata.get("stack_frame_id", 0))
        for c in module.computations
        for i in c.instructions
        if i.opcode == "tanh"
    ]
    assert frames and all(stack[0][0].endswith("test_compiled.py") and stack[0][2].endswith("f") for stack in frames)


def convolution(image: jax.Array, filters: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(jax.lax.conv_general_dilated(image, filters, (1, 1), "SAME", dimension_numbers=numbers))


@on_both
@pytest.mark.parametrize(
    ("fun", "args", "plain"),
    [
        (lambda a, b: jnp.tanh(a @ b), (struct(512, 256), struct(256, 512)), "dot"),
        (
            lambda a, b: a @ b,
            (struct(512, 512, dtype=ml_dtypes.bfloat16), struct(512, 512, dtype=ml_dtypes.bfloat16)),
            "dot",
        ),
        (convolution, (struct(8, 32, 32, 64), struct(3, 3, 64, 64)), "convolution"),
        (lambda a: jax.lax.sort(a), (struct(1 << 16),), "sort"),
        (lambda a: jax.lax.top_k(a, 8), (struct(64, 4096),), "topk"),
        (jax.nn.softmax, (struct(512, 512),), "reduce"),
        (lambda a: jnp.cumsum(a, axis=1), (struct(64, 512),), "reduce-window"),
    ],
)
def test_what_libraries_do_can_be_read(
    fun: Callable[..., Any], args: tuple[Any, ...], plain: str, device: devices.Device
) -> None:
    """Catches a call of cuBLAS, cuDNN or CUB in what is planned: nothing around it could be stitched to it."""
    found = graph.build(hlo_parser.parse(capture(fun, args, device).text)).nodes
    assert any(n.op == plain for n in found)
    assert not any(n.op == "custom-call" for n in found)


@on_both
def test_what_is_planned_is_what_would_run(device: devices.Device) -> None:
    """Planned on another compilation, kernels competed with kernels that are not in XLA's program: a softmax behind a
    product moved more bytes on an H200 than before, and plans of dumps were others than those of their functions.
    """
    captured = capture(lambda x, w: jax.nn.softmax(jnp.tanh(x @ w) + x), (struct(256, 256),) * 2, device)
    assert captured.text is captured.default_text


@needs_plugin
def test_what_cannot_be_read_is_compiled_without_the_library() -> None:
    """A gradient of a grouped convolution as cuDNN has it is no convolution of HLO."""

    def gradient(image: jax.Array, filters: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        options = {"dimension_numbers": numbers, "feature_group_count": 8}

        def loss(filters: jax.Array) -> jax.Array:
            return (jax.lax.conv_general_dilated(image, filters, (1, 1), "SAME", **options) ** 2).sum()

        return jax.grad(loss)(filters)

    captured = capture(gradient, (struct(2, 8, 8, 8), struct(3, 3, 1, 8)), H200)
    assert "__cudnn$" in captured.default_text and "__cudnn$" not in captured.text


@needs_plugin
@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (lambda a, b: jax.lax.dot(a, b, preferred_element_type=np.int32), (struct(256, 256, dtype=np.int8),) * 2),
        (lambda a, b: jax.lax.dot(a, b, precision="BF16_BF16_F32_X3"), (struct(512, 512),) * 2),
        (jax.nn.dot_product_attention, (struct(2, 64, 4, 32, dtype=ml_dtypes.bfloat16),) * 3),
    ],
)
def test_products_that_xla_cannot_emit_plainly_still_show(fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    module = hlo_parser.parse(capture(fun, args, H200).text)
    assert any(i.opcode == "dot" for c in module.computations for i in c.instructions)


def _unregistered(a: jax.Array) -> jax.Array:
    return jax.ffi.ffi_call("nobody_registered_this", jax.ShapeDtypeStruct(a.shape, a.dtype))(a)


def test_what_xla_cannot_compile_at_all_says_why() -> None:
    with pytest.raises(CaptureError, match="nobody_registered_this"):
        _ = capture(_unregistered, (struct(3),), devices.get("cpu")).text


@needs_plugin
def test_calls_for_a_described_gpu_need_nobody_to_register_them() -> None:
    """Catches a plan that is refused for a function that only the machine with the GPU has."""
    assert "nobody_registered_this" in capture(_unregistered, (struct(3),), H200).text


@needs_plugin
def test_the_default_compilation_is_xlas_own() -> None:
    captured = capture(lambda a, b: jnp.tanh(a @ b), (struct(512, 256), struct(256, 512)), H200)
    assert "__triton" in captured.default_text or "__cublas" in captured.default_text
    assert captured.default_text is captured.default_text


@needs_plugin
def test_each_described_gpu_gets_its_own_code() -> None:
    """A topology cached under the wrong key would give the same text."""
    texts = [capture(jax.nn.softmax, (struct(64, 65536),), devices.get(n)).text for n in ("t4", "h200", "b200", "t4")]
    assert texts[0] == texts[3] and len(set(texts)) > 1


@needs_plugin
def test_a_ptx_kernel_links_for_a_described_gpu() -> None:
    def f(a: jax.Array) -> jax.Array:
        n = np.int32
        kernel = ".version 8.0\n.target sm_90\n.address_size 64\n"
        kernel += ".visible .entry twice(.param .u64 a, .param .u64 b) { ret; }"
        return jax.ffi.ffi_call("__gpu$xla.gpu.ptx", jax.ShapeDtypeStruct(a.shape, a.dtype))(
            a * 2, name="twice", kernel_type="ptx", kernel_data=kernel, grid_x=n(4), grid_y=n(1), grid_z=n(1),
            block_x=n(256), block_y=n(1), block_z=n(1), shared_mem_bytes=n(0),
        )  # fmt: skip

    program = lower(f, (struct(1024),), H200)
    text = compile_for(program.bytecode(), H200)
    assert text == program.text() and "__gpu$xla.gpu.ptx" in text


def test_a_missing_plugin_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_stitch.frontend.capture.client.cuda_plugin_installed", lambda: False)
    with pytest.raises(CudaPluginMissing, match=r'pip install "jax-stitch\[plan\]"'):
        _ = capture(lambda a: a + 1, (struct(3),), H200).text
