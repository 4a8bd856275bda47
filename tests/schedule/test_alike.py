"""Kernels that are alike are scheduled and written once: each has the schedule and text that it would have alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import devices
from jax_stitch.emit import emit, structure
from jax_stitch.frontend.capture import capture
from jax_stitch.latency.clusters import in_clusters
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.schedule import Part, ScheduledKernel, schedule
from jax_stitch.schedule import alike as alike_kernels


def stitched(fun: Any, args: Any, device: str) -> Stitched:
    flat, tree = jax.tree.flatten(args)

    def whole(*leaves: Any) -> Any:
        return fun(*jax.tree.unflatten(tree, leaves))

    known = devices.get(device)
    return stitch_capture(capture(whole, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat], known), known)


def updates(params: list[jax.Array], grads: list[jax.Array], means: list[jax.Array]) -> Any:
    """Tensors of several shapes, one of them with the operands the other way round."""
    new = [0.9 * m + jnp.tanh(g) for m, g in zip(means, grads, strict=True)]
    new[1] = jnp.tanh(grads[1]) + means[1] * 0.9
    steps = [p - 1e-3 * m / (jnp.sqrt(m * m) + 1e-8) for p, m in zip(params, new, strict=True)]
    return steps, new


def layers(x: jax.Array, weights: list[jax.Array]) -> Any:
    """Normalisation and softmax between products, and the gradient of all."""

    def loss(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
        for w in weights:
            h = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x + jax.nn.softmax(h @ w, -1)
        return jnp.sum(x * x)

    return jax.grad(loss, 1)(x, weights)


def tables(table: jax.Array, rows: list[jax.Array]) -> Any:
    """Reads at indices that are data, each the same of other data."""
    return [jnp.tanh(table[r]).sum(-1) * 2 for r in rows]


def arrays(*shapes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]


SHAPES = ((2048, 1024), (2048, 1024), (4096, 700), (2048, 1024), (4096, 700), (5,))
PROGRAMS: dict[str, tuple[Any, Any, int]] = {
    "updates": (updates, (arrays(*SHAPES), arrays(*SHAPES), arrays(*SHAPES)), 2),
    "layers": (layers, (jnp.zeros((48, 64)), arrays(*[(64, 64)] * 4)), 1),
    "tables": (tables, (jnp.zeros((100, 24)), [jnp.zeros(16, jnp.int32), jnp.ones(16, jnp.int32)]), 0),
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_if_each_were_alone(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    real = alike_kernels.moved_to

    def counted(kernel: ScheduledKernel, name: str, *rest: Any) -> ScheduledKernel:
        moved.append(name)
        return real(kernel, name, *rest)

    monkeypatch.setattr("jax_stitch.pipeline.moved_to", counted)
    fun, args, least = PROGRAMS[name]
    made = stitched(fun, args, device)
    check(made)
    if device == "cpu":  # A GPU has the tensors of an optimizer in one launch.
        assert len(moved) >= least


def check(made: Stitched) -> None:
    """Each kernel of a plan has the schedule and the text that it has by itself."""
    for kernel in made.kernels:
        patterns = [p.pattern for p in kernel.scheduled.parts]
        own = schedule(kernel.scheduled.graph, patterns, made.device, kernel.scheduled.name)
        own = in_clusters(own, made.device)
        assert own.inputs == kernel.scheduled.inputs and own.outputs == kernel.scheduled.outputs
        assert [facts(p) for p in own.parts] == [facts(p) for p in kernel.scheduled.parts]
        assert structure(emit(own)) == structure(kernel.source)


def facts(part: Part) -> dict[str, Any]:
    return {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.name not in ("pattern", "team")}
