"""Sorts along a row inside kernels: bit for bit XLA's, for every type, order and length, and with neighbours."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jax_stitch import stitch_jit
from jax_stitch.analysis import sorts
from jax_stitch.backend.compile import NvrtcMissing, compile_ptx, nvrtc
from jax_stitch.checking import check_function
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.pipeline import Stitched, stitch_capture
from tests.fusion import forced
from tests.some import some

TARGETS = {name: forced.device(name) for name in ("cpu", "a100", "h200")}
DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8", "int16", "bool")


def planned(target: str, function: Any, *args: Any) -> Stitched:
    """A function stitched for ``target`` with its sorts in kernels, also those that a CPU leaves to XLA."""
    with mock.patch.object(sorts, "_is_of_plain_numbers", lambda node: False):
        made = forced.stitched(forced.hlo_of(function, *args), TARGETS[target])
    assert any("ST_SORT" in kernel.source.text for kernel in made.kernels)
    return made


def same_bits(got: Any, want: Any) -> None:
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(g), np.asarray(w)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


def awkward(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Few different values, so that many are equal; of floats also both zeros, infinities and NaNs of both signs."""
    rng = np.random.default_rng(seed)
    if not jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        low, high = (0, 2) if dtype == "bool" else (0, 9) if dtype[0] == "u" else (-9, 9)
        return rng.integers(low, high, shape).astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    found = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), np.round(rng.standard_normal(shape) * 4) / 4)
    return found.astype(jnp.dtype(dtype))


@settings(max_examples=some(4, of=14), deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 9),
    size=st.sampled_from((2, 3, 8, 31, 32, 33, 64, 65, 100, 127, 129, 300, 1100)),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
    keys=st.integers(1, 3),
    axis=st.integers(0, 1),
    target=st.sampled_from(sorted(TARGETS)),
)
def test_stable_sorts_of_several_arrays(rows, size, dtypes, keys, axis, target) -> None:
    shape = (rows, size) if axis else (size, rows)
    args = [awkward(shape, d, k) for k, d in enumerate(dtypes)]

    def function(*xs):
        return lax.sort([x[::-1] for x in xs], dimension=axis, num_keys=min(keys, len(xs)))

    same_bits(forced.run(planned(target, function, *args), args), jax.jit(function)(*args))


def descending(x):
    return jnp.sort(x, axis=1, descending=True), jnp.argsort(x, axis=1, descending=True)


def rank(x):
    """A sort of what another has made."""
    return jnp.argsort(jnp.argsort(x, axis=1), axis=1)


def median_and_quantile(x):
    return jnp.median(x, axis=1), jnp.quantile(x, 0.3, axis=1)


def middle_axis(x):
    return jnp.sort(x.reshape(x.shape[0], -1, 5), axis=1) + 1


def beam(x):
    """The hypotheses that go on, their scores, and which they came from: sorted, sliced, gathered by the indices."""
    scores, at = lax.sort((-x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), dimension=1, num_keys=1)
    best = at[:, :4]
    return -scores[:, :4], best // 10, best % 10, jnp.take_along_axis(x, best, axis=1)


PROGRAMS = (descending, rank, median_and_quantile, middle_axis, beam)


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_with_sorts(function, target: str) -> None:
    x = (
        awkward((7, 150), "float32")
        if function is not median_and_quantile
        else np.float32(np.random.default_rng(1).standard_normal((7, 151)))
    )
    same_bits(forced.run(planned(target, function, x), [x]), jax.jit(function)(x))


def sampled(x, key):
    """Nucleus sampling: of the most probable tokens that make up 0.9, one."""
    order = jnp.argsort(-x, axis=-1)
    ranked = jnp.take_along_axis(x, order, axis=-1)
    p = jax.nn.softmax(ranked, axis=-1)
    kept = jnp.where(jnp.cumsum(p, axis=-1) - p < 0.9, ranked, -jnp.inf)
    chosen = jax.random.categorical(jax.random.wrap_key_data(key), kept)
    return jnp.take_along_axis(order, chosen[:, None], axis=-1)[:, 0]


def routed(x):
    """The two best of a token's experts, the weight of each, and how evenly tokens are spread over them."""
    best, experts = lax.top_k(x, 2)
    weights = (jax.nn.one_hot(experts, x.shape[-1]) * jax.nn.softmax(best, axis=-1)[..., None]).sum(1)
    return weights, experts, (jax.nn.softmax(x, -1).mean(0) * weights.mean(0)).sum()


def extended(logits, scores):
    """A step of beam search: of all continuations of all hypotheses as many as there are hypotheses."""
    batch, beams, tokens = logits.shape
    total = scores[..., None] + jax.nn.log_softmax(logits, axis=-1)
    best, at = lax.top_k(total.reshape(batch, beams * tokens), beams)
    return best, at % tokens, jnp.take_along_axis(scores, at // tokens, axis=1)


def key_data() -> Any:
    return jax.random.key_data(jax.random.key(4))


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_a_sampling_step(target: str) -> None:
    args = [np.random.default_rng(3).standard_normal((6, 500)).astype(np.float32), key_data()]
    same_bits(forced.run(planned(target, sampled, *args), args), jax.jit(sampled)(*args))


STEPS = {
    sampled: (8, lambda rows: (jax.ShapeDtypeStruct((rows, 1024), jnp.float32), key_data())),
    routed: (9, lambda rows: (jax.ShapeDtypeStruct((128 * rows, 64), jnp.float32),)),
    extended: (3, lambda rows: (jnp.zeros((rows, 4, 250)), jnp.zeros((rows, 4)))),
}


@pytest.mark.skipif(not cuda_plugin_installed(), reason="needs JAX's CUDA plugin, for XLA's GPU compiler")
@pytest.mark.parametrize("function", STEPS, ids=lambda f: f.__name__)
def test_steps_of_inference_are_one_kernel(function) -> None:
    """Planned for the H200 as users' functions are; run in checking mode at a size that it can."""
    launches, args_of = STEPS[function]
    plan = stitch_jit(function).plan(*args_of(64), device="h200")
    assert plan.xla_launches >= launches
    assert (plan.launches, len(plan.kernels)) == (1, 1)
    rng = np.random.default_rng(5)
    args = [
        np.asarray(a) if a.dtype == jnp.uint32 else np.round(rng.standard_normal(a.shape) * 8).astype(np.float32) / 8
        for a in args_of(3)
    ]
    made = stitch_capture(capture(function, args, TARGETS["h200"]), TARGETS["h200"])
    checked = check_function(made, args)
    assert not checked.faulty, str(checked)
    for got, want in zip(checked.results, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [5, 16, 50, 64, 65, 513, pytest.param(2100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", [1, 5])
def test_nothing_is_found_in_checking_mode(size: int, first: int) -> None:
    """Races between warps, reads of places past the row's end, bank conflicts; of all places and of the first."""
    x = awkward((5, size), "float32")

    def function(x):
        values, indices = lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), num_keys=1)
        return (values[:, :first], indices[:, :first]) if first > 1 else (values, indices)

    made = planned("h200", function, x)
    checked = check_function(made, [x])
    assert not checked.faulty, str(checked)
    same_bits(checked.results, jax.jit(function)(x))


def test_numbers_by_themselves_stay_with_xla_on_a_cpu() -> None:
    """There it sorts them in half the time that a kernel takes; floats, whose order is not a comparison, in twice."""
    for dtype, kept in ((jnp.int32, True), (jnp.float32, False)):
        graph = forced.graph_of(lambda x: jnp.sort(x * 2, axis=1) + x, jax.ShapeDtypeStruct((64, 100), dtype))
        for target in TARGETS.values():
            plan = forced.plan_of(graph, target)
            reasons = [c.reason for c in plan.boundaries if plan.graph[c.node].op == "sort"]
            assert bool(reasons) == (kept and target.kind == "cpu"), reasons
            assert all("XLA has a library" in reason for reason in reasons)


def test_long_rows_stay_with_xla() -> None:
    """A block's shared memory has room for two sorts of a row; what is around a longer one is stitched all the same."""
    x = jax.ShapeDtypeStruct((4, 1 << 16), jnp.float32)
    plan = forced.plan_of(
        forced.graph_of(lambda x: jnp.cumsum(jax.nn.softmax(jnp.sort(x * 2, axis=1))), x), TARGETS["h200"]
    )
    (boundary,) = (c for c in plan.boundaries if plan.graph[c.node].op == "sort")
    assert "524,288 bytes: a block sorts rows of up to 116,224 bytes" in boundary.reason
    assert plan.kernels


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100"])
def test_compiles_for_every_gpu_without_spills(arch: str) -> None:
    """An array of a thread's own that the compiler cannot keep in registers would show as its stack."""
    try:
        nvrtc.nvrtc()
    except NvrtcMissing as missing:
        pytest.skip(str(missing))
    for kernel in planned("a100", descending, jax.ShapeDtypeStruct((640, 1000), jnp.float32)).kernels:
        compiled = compile_ptx(kernel.source, arch)
        assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
        assert compiled.registers <= 64
