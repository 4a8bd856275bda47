"""What kernels read and what they recompute."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import capture, cuda_plugin_installed
from jax_stitch.fusion.launches import recompute
from jax_stitch.fusion.launches.leftover_kernels import LONG
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced

TEXT = """%x = f32[64]{0} parameter(0)
%y = f32[64]{0} parameter(1)
%a0 = f32[] parameter(2)
%a1 = f32[] parameter(3)
%a2 = f32[] parameter(4)
%a3 = f32[] parameter(5)
%a4 = f32[] parameter(6)
%a5 = f32[] parameter(7)
%s1 = f32[] add(%a0, %a1)
%s2 = f32[] add(%s1, %a2)
%s3 = f32[] add(%s2, %a3)
%s4 = f32[] add(%s3, %a4)
%s5 = f32[] add(%s4, %a5)
%near = f32[64]{0} broadcast(%s2), dimensions={}
%far = f32[64]{0} broadcast(%s5), dimensions={}
%v = f32[64]{0} multiply(%x, %near)
%w = f32[64]{0} multiply(%y, %far)
ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%v, %w)"""


@pytest.mark.parametrize("largest", range(2, 14))
def test_all_that_is_read_is_of_use(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two values reads a scalar of a long chain, since what it is made of is too far up; the other would make
    it. Catches: reading what that would take too, which nothing in the kernel names.
    """
    monkeypatch.setattr(recompute, "LARGEST", largest)
    graph = forced.graph_from(TEXT)
    named = {n.name: n.id for n in graph.nodes}
    wanted = [named["v"], named["w"]]
    values = recompute._Values(graph, devices.get("h200"), ())
    read, made = recompute._cut(values, wanted, set(graph.parameters), ())
    taken = {o for i in made for o in graph[i].operands}
    assert read <= taken | set(wanted) and taken <= read | made | {i for i in taken if graph[i].op == "constant"}


def _layers(rng: random.Random) -> str:
    """Sums and products of values that come from products of matrices, sized at random, as in residual layers."""
    lines = ["%w = f32[8,8]{1,0} parameter(0)", "%x0 = f32[8,8]{1,0} parameter(1)", "%s0 = f32[] parameter(2)"]
    arrays, scalars = ["x0"], ["s0"]
    for k in range(1, rng.randrange(4, 24)):
        kind = rng.choice(("dot", "add", "multiply", "tanh", "transpose", "scalar", "scale"))
        a, b = rng.choice(arrays[-4:]), rng.choice(arrays[-6:])
        numbers = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        text = {
            "dot": f"%x{k} = f32[8,8]{{1,0}} dot(%{a}, %w), {numbers}",
            "tanh": f"%x{k} = f32[8,8]{{1,0}} tanh(%{a})",
            "transpose": f"%x{k} = f32[8,8]{{1,0}} transpose(%{a}), dimensions={{1,0}}",
            "scale": f"%x{k} = f32[8,8]{{1,0}} broadcast(%{rng.choice(scalars)}), dimensions={{}}",
            "scalar": f"%s{k} = f32[] add(%{rng.choice(scalars)}, %{rng.choice(scalars)})",
        }.get(kind, f"%x{k} = f32[8,8]{{1,0}} {kind}(%{a}, %{b})")
        lines.append(text)
        (scalars if kind == "scalar" else arrays).append(text.split(" ")[0][1:])
    lines.append(f"ROOT %t = (f32[8,8]{{1,0}}) tuple(%{arrays[-1]})")
    return "\n".join(lines)


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_what_is_passed_over_costs_more_to_make(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a value read although it would be cheaper to make, since a cut did not look above it."""
    passed_over = 0
    for seed in range(300):
        rng = random.Random(seed)
        graph = forced.graph_from(_layers(rng))
        found = []
        wanted = rng.sample(range(len(graph)), rng.randrange(1, 4))
        in_memory = {*graph.parameters, *rng.sample(range(len(graph)), len(graph) // 2)}
        hidden = set(rng.sample(sorted(set(range(len(graph))) - in_memory), len(graph) // 8))
        for is_every_value_looked_at in (False, True):
            values = recompute._Values(graph, devices.get(device), ())
            passed_over += sum(values.is_better_read(i, wanted) for i in in_memory & values.makeable)
            with monkeypatch.context() as patch:
                if is_every_value_looked_at:
                    patch.setattr(values, "is_better_read", lambda *_: False)
                found.append(recompute._cut(values, wanted, in_memory, hidden))
        assert found[0] == found[1], seed
    assert passed_over


def _clipped(gradients: Any, moments: Any, values: Any) -> Any:
    """A step of momentum whose gradients are divided by the norm of all."""
    norm = jnp.sqrt(sum((jnp.sum(g * g) for g in gradients), jnp.float32(0)))
    moments = [0.9 * m + jnp.where(norm < 1, g, g / norm) for g, m in zip(gradients, moments, strict=True)]
    return moments, [v - 0.1 * m / (1 + m * m) for v, m in zip(values, moments, strict=True)]


@pytest.mark.skipif(not cuda_plugin_installed(), reason="JAX's CUDA plugin is needed to ask XLA's GPU compiler")
def test_a_long_total_is_made_once() -> None:
    """Catches: the norm of all gradients added up from those of each by every thread that scales one."""
    _check_made_once("h200")


def test_a_long_total_is_made_once_on_a_cpu() -> None:
    """Catches: the same, where each kernel is a launch by itself and XLA makes the total."""
    _check_made_once("cpu")


def _check_made_once(device: str) -> None:
    arrays = [np.random.default_rng(k).standard_normal((100, 100 + k)).astype(np.float32) for k in range(LONG + 4)]
    chosen = devices.get(device)
    kernels = stitch_capture(capture(_clipped, (arrays, arrays, arrays), chosen), chosen)
    large = [p.pattern for k in kernels.kernels for p in k.scheduled.parts if p.pattern.rows > 1]
    assert len(large) > LONG and max(len(p.copies) for p in large) <= LONG
    exact = [np.asarray(a, np.float64) for a in arrays]
    norm = np.sqrt(sum((a**2).sum() for a in exact))
    assert norm > 1
    moments = [0.9 * a + a / norm for a in exact]
    wanted = [*moments, *(a - 0.1 * m / (1 + m * m) for a, m in zip(exact, moments, strict=True))]
    for got, value in zip(forced.run(kernels, arrays * 3), wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not cuda_plugin_installed(), reason="JAX's CUDA plugin is needed to ask XLA's GPU compiler")
def test_a_convolution_of_channels_is_computed_in_one_phase() -> None:
    """Fifteen elements of a window for each of its own: each phase that wanted the result loaded them again."""

    def normalised(x: Any, taps: Any) -> Any:
        padded = jnp.pad(x, ((0, 0), (7, 7), (0, 0)))
        y = sum(padded[:, k : k + x.shape[1]] * taps[k] for k in range(15))
        centred = y - y.mean((0, 1))
        return jax.nn.silu(centred * jax.lax.rsqrt((centred * centred).mean((0, 1)) + 1e-5))

    device = devices.get("h200")
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 512, 256), (15, 256))]
    stitched = stitch_capture(capture(normalised, args, device), device)
    inside = [p.pattern.inside for k in stitched.kernels for p in k.scheduled.parts]
    graph = stitched.kernels[0].scheduled.graph
    assert sum(sum(graph[i].op == "slice" for i in nodes) > 1 for nodes in inside) == 1


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_sum_of_an_iota_alone_knows_its_places(device: str) -> None:
    """Its binding went with those of what a pattern has no more, since it is no input: a KeyError."""

    def fun(scale: Any) -> Any:
        return jnp.sum(jax.lax.iota(jnp.float32, 2048)) * scale

    for seed in (1, 3, 11):
        made = forced.stitched(forced.hlo_of(fun, np.float32(2)), forced.device(device), seed)
        assert made.kernels
        assert forced.run(made, [np.float32(2)])[0] == 2048 * 2047


def test_a_light_value_of_many_places_is_computed_at_each() -> None:
    """Squares that windows of windows want 25 times for each element were left to XLA, a launch of its own, though a
    place takes one load either way.
    """

    def gradient(x: Any) -> Any:
        def loss(x: Any) -> Any:
            squares = jax.lax.reduce_window(x * x, 0.0, jax.lax.add, (1, 5), (1, 1), "SAME")
            return jnp.sum(jnp.sin(x * jax.lax.rsqrt(1 + squares * 1e-2)))

        return jax.grad(loss)(x)

    x = np.random.default_rng(0).standard_normal((126, 6)).astype(np.float32)
    made = forced.stitched(forced.hlo_of(gradient, x), forced.device("h200"))
    assert not made.plan.boundaries
    np.testing.assert_allclose(forced.run(made, [x])[0], jax.jit(gradient)(x), rtol=1e-5, atol=1e-6)
