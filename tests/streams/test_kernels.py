"""Streams as kernels of a CPU: one kernel in place of two products and what stands between them, whatever its sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import stitch, stitch_jit
from jax_stitch.fusion import planner
from jax_stitch.fusion.streams import choice
from jax_stitch.graph.model import STREAMED
from jax_stitch.loops.teams import team_choice
from tests.streams.programs import PROGRAMS, attention, causal, heads, normal

SOME = (
    "kernel times a vector",
    "kernel times a matrix",
    "kernel's gradient",
    "rectified products",
    "full",
    "causal",
    "causal, finite fill",
    "rows masked whole",
    "soft cap",
    "bias",
    "log-sum-exp",
    "any lengths, with bias",
    "any lengths, linear",
    "one key head",
    "jax.nn, bf16",
    "by hand",
    "over queries",
)


@pytest.fixture(autouse=True)
def always_worth() -> Iterator[None]:
    """Small programs too, in several tiles."""
    with mock.patch.multiple(choice, TILE=16, MARGIN=1e-6, AROUND=0, WIDE=0):
        yield


def loops_of(plan: Any) -> list[str]:
    return [k.source for k in plan.kernels if "a loop of" in k.source]


@pytest.mark.parametrize("name", SOME)
def test_one_kernel_computes_the_same(name: str) -> None:
    """Catches wrong kernels of right graphs: errors are at most those of ``jax.jit``, twice, against float64."""
    function, arguments = PROGRAMS[name]
    step = stitch_jit(function, mode="now")
    assert len(loops_of(step.plan(*arguments))) == (2 if "gradient" in name else 1)
    results = jax.tree.leaves(step(*arguments))
    plain = jax.tree.leaves(jax.jit(function)(*arguments))
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) if np.asarray(a).dtype.kind not in "iub" else a for a in arguments]
        exact = [np.asarray(e) for e in jax.tree.leaves(jax.jit(function)(*wide))]
    for result, other, best in zip(results, plain, exact, strict=True):
        ours, theirs = (np.asarray(x, np.float64) for x in (result, other))
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
        error, allowed = np.nanmax(np.abs(ours - best), initial=0), np.nanmax(np.abs(theirs - best), initial=0)
        assert error <= 2 * allowed + 2e-7 * np.nanmax(np.abs(best), initial=0)


def test_masked_tiles_are_skipped() -> None:
    """Catches kernels that go through tiles of which a mask leaves nothing."""

    def masked(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, mask=causal)

    (masked_text,) = loops_of(stitch_jit(masked).plan(*heads(64), device="zen3"))
    (full_text,) = loops_of(stitch_jit(attention).plan(*heads(64), device="zen3"))
    assert "step_turn" in masked_text
    assert "step_turn" not in full_text


@pytest.mark.parametrize("device", ["haswell", "sapphire-rapids", "neoverse-n1"])
def test_products_are_in_blocks(device: str) -> None:
    """Catches products of tiles that are summed up number by number."""
    (text,) = loops_of(stitch_jit(attention).plan(*heads(64), device=device))
    assert text.count("ST_PRODUCT_FROM_ZERO(") == 2


def test_layers_after_each_other() -> None:
    def layers(x: Any, w: Any) -> Any:
        for k in range(2):
            q, key, v = (x @ w[k, n] for n in range(3))
            x = x + jax.nn.softmax(q @ key.T * 0.25) @ v
        return x

    arguments = normal(0, 64, 16), 0.25 * normal(1, 2, 3, 16, 16)
    step = stitch_jit(layers, mode="now")
    assert len(loops_of(step.plan(*arguments))) >= 2
    np.testing.assert_allclose(step(*arguments), jax.jit(layers)(*arguments), 2e-5, 2e-5)


def test_layers_in_a_scan() -> None:
    """Catches bodies of loops that are left out."""

    def layers(x: Any, w: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            q, key, v = (x @ w[n] for n in range(3))
            return x + jax.nn.softmax(q @ key.T * 0.25) @ v, None

        return jax.lax.scan(layer, x, w)[0]

    arguments = normal(0, 64, 16), 0.25 * normal(1, 2, 3, 16, 16)
    step = stitch_jit(layers, mode="now")
    with (
        mock.patch.object(planner, "_is_in_cache", return_value=False),
        mock.patch.object(team_choice, "is_worth", lambda loop, node, *_: STREAMED in node.attributes),
    ):
        np.testing.assert_allclose(step(*arguments), jax.jit(layers)(*arguments), 2e-5, 2e-5)
        assert loops_of(step.plan(*arguments))


def test_gradients_are_three_kernels() -> None:
    """Catches scores that are written after all, for the next sweep."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (attention(q, k, v, mask=causal) ** 2).sum()

    gradient = jax.grad(loss, (0, 1, 2))
    assert len(loops_of(stitch_jit(gradient, mode="now").plan(*heads(48)))) in (3, 4)
    for ours, theirs in zip(stitch_jit(gradient, mode="now")(*heads(48)), jax.jit(gradient)(*heads(48)), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


def test_gradients_of_each_layer() -> None:
    """Catches layers that are left once another one, with products of its own, has been taken."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (attention(jnp.tanh(attention(q, k, v)), k, v) ** 2).sum()

    one = len(loops_of(stitch_jit(jax.grad(lambda *a: (attention(*a) ** 2).sum(), (0, 1, 2))).plan(*heads(32))))
    assert len(loops_of(stitch_jit(jax.grad(loss, (0, 1, 2))).plan(*heads(32)))) >= 2 * one


def test_short_axes_are_left() -> None:
    assert not loops_of(stitch_jit(attention).plan(*heads(8, 8), device="zen3"))


@pytest.mark.parametrize("device", ["h200", "zen4"])
def test_a_factor_that_is_computed_is_computed_before(device: str) -> None:
    """Catches tiles of values with dimensions of their own: of one head, its values with their bias, which the product
    with the output's weights has in its terms.
    """

    def layer(x: Any, w: Any, bias: Any, out: Any) -> Any:
        q, k, v = (jnp.einsum("btf,fg->btg", x, w[n]) + bias[n] for n in range(3))
        weights = jax.nn.softmax(jnp.einsum("bqf,bkf->bqk", q, k) * 0.2)
        return x + jnp.einsum("bqf,fg->bqg", jnp.einsum("bqk,bkf->bqf", weights, v), out)

    sizes = ((2, 64, 32), (3, 32, 32), (3, 32), (32, 32))
    arguments = tuple(0.3 * normal(n, *size) for n, size in enumerate(sizes))
    with jax.default_matmul_precision("highest"):
        found = jax.jit(stitch(layer, schedule_device=device))(*arguments)
        np.testing.assert_allclose(found, jax.jit(layer)(*arguments), 2e-5, 2e-5)
