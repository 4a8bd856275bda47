"""Elementwise operations on the way to a product, which a kernel before it does for nothing."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from bench.workloads import ALL
from jax_stitch import stitch_jit
from jax_stitch.frontend.capture import cuda_plugin_installed
from jax_stitch.fusion.rewrites.with_producers import with_producers
from jax_stitch.graph.model import Graph
from tests.fusion import forced

NUMBERS = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
PRODUCT = """
%turned (v: f32[64,128,256]) -> f32[64,256,128] {
  %v = f32[64,128,256] parameter(0)
  ROOT %t = f32[64,256,128] transpose(%v), dimensions={0,2,1}
}
%gemm (x: f32[64,256,128], b: f32[256], w: f32[64,128,512]) -> f32[64,256,512] {
  %x = f32[64,256,128] parameter(0)
  %b = f32[256] parameter(1)
  %w = f32[64,128,512] parameter(2)
  %bias = f32[64,256,128] broadcast(%b), dimensions={1}
  %sum = f32[64,256,128] add(%x, %bias)
  OPERATION
  ROOT %d = f32[64,256,512] dot(%last, %w), NUMBERS
}""".replace("NUMBERS", NUMBERS)
BODY = """
  %p = f32[64,128,256] parameter(0)
  %b = f32[256] parameter(1)
  %w = f32[64,128,512] parameter(2)
  %made = f32[64,256,128] fusion(%p), kind=kInput, calls=%turned
  OTHER
  ROOT %out = f32[64,256,512] fusion(%made, %b, %w), kind=kCustom, calls=%gemm"""


def kernels(built: Graph) -> dict[str, str]:
    return {n.op: n.kernel for n in built.nodes if n.kernel}


@pytest.mark.parametrize(
    ("operation", "moved"),
    [
        ("%last = f32[64,256,128] tanh(%sum)", {"add": "made", "tanh": "made"}),
        ("%last = f32[64,256,128] multiply(%sum, %sum)", {"add": "made"}),
    ],
)
def test_what_reads_one_array_goes_with_it(operation: str, moved: dict[str, str]) -> None:
    """A sum that a product reads twice on the way is not written twice."""
    built = forced.graph_from(BODY.replace("OTHER", ""), PRODUCT.replace("OPERATION", operation))
    found = kernels(with_producers(built))
    assert {op: found[op] for op in moved} == moved and found["dot"] == "out"


def test_what_joins_large_arrays_stays() -> None:
    """Taken out of the product, it would be written, which nobody had to."""
    joined = "%twice = f32[64,256,128] exponential(%x)\n  %last = f32[64,256,128] add(%sum, %twice)"
    built = forced.graph_from(BODY.replace("OTHER", ""), PRODUCT.replace("OPERATION", joined))
    assert with_producers(built) is built


def test_what_makes_more_bytes_stays() -> None:
    """A conversion to a wider type on the way: the narrow array is what is written."""
    body = """
  %p = f32[64,256,128] parameter(0)
  %w = f32[64,128,512] parameter(1)
  %made = bf16[64,256,128] convert(%p)
  ROOT %out = f32[64,256,512] fusion(%made, %w), kind=kCustom, calls=%gemm"""
    gemm = """
%gemm (x: bf16[64,256,128], w: f32[64,128,512]) -> f32[64,256,512] {
  %x = bf16[64,256,128] parameter(0)
  %w = f32[64,128,512] parameter(1)
  %wide = f32[64,256,128] convert(%x)
  ROOT %d = f32[64,256,512] dot(%wide, %w), NUMBERS
}""".replace("NUMBERS", NUMBERS)
    built = forced.graph_from(body, gemm)
    assert with_producers(built) is built


def test_a_view_on_the_way_goes_with_them() -> None:
    """A bitcast of XLA between two kernels belongs to neither: left out, it parts what is one pattern in two phases."""
    body = """
  %p = f32[8,8,128,256] parameter(0)
  %b = f32[256] parameter(1)
  %w = f32[64,128,512] parameter(2)
  %made = f32[8,8,256,128] fusion(%p), kind=kInput, calls=%turned
  %view = f32[64,256,128] bitcast(%made)
  ROOT %out = f32[64,256,512] fusion(%view, %b, %w), kind=kCustom, calls=%gemm"""
    turned = """
%turned (v: f32[8,8,128,256]) -> f32[8,8,256,128] {
  %v = f32[8,8,128,256] parameter(0)
  ROOT %t = f32[8,8,256,128] transpose(%v), dimensions={0,1,3,2}
}
"""
    product = PRODUCT[PRODUCT.index("%gemm") :].replace("OPERATION", "%last = f32[64,256,128] tanh(%sum)")
    found = with_producers(forced.graph_from(body, turned + product))
    assert [n.kernel for n in found.nodes if n.op == "reshape"] == ["made"]


@pytest.mark.skipif(not cuda_plugin_installed(), reason="plans for a GPU")
@pytest.mark.parametrize(
    ("name", "size", "launches"),
    [
        pytest.param("bert_inference", (8, 128, 256, 1, 4, 8000), 12, marks=pytest.mark.slow),
        pytest.param("asr_inference", (8, 1024, 80, 512, 1, 8, 4000), 18, marks=pytest.mark.slow),
    ],
)
def test_biases_of_attention_are_added_where_it_is_transposed(name: str, size: tuple[int, ...], launches: int) -> None:
    """Two or three launches more of a layer under jax 0.12: one for the bias of each of queries, keys and values."""
    function, args = ALL[name].abstract(size, jnp.dtype(jnp.float32))
    assert stitch_jit(function).plan(*args, device="h200").launches <= launches
