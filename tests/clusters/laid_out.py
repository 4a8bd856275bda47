"""Functions whose rows several passes read, with their kernels in clusters of a given size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.devices import Device
from jax_stitch.emit import emit
from jax_stitch.frontend.capture import capture
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.schedule import schedule
from jax_stitch.schedule.template import Template
from tests.fusion import forced

H200 = forced.device("h200")


def softmax(x: Any, *_: Any) -> Any:
    return jax.nn.softmax(x, 1)


def normalised(x: Any) -> Any:
    mean = x.mean(1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)


def layer_norm_gradient(x: Any, g: Any) -> Any:
    """By ``x`` alone: four reductions of each row, two of which wait for the others."""
    return jax.vjp(normalised, x)[1](g)[0]


def scale_gradient(x: Any, g: Any) -> Any:
    """By a scale as well: sums across rows at each place, beside reductions of the row."""
    y = normalised(x)
    return (y * g).sum(0), y * g.sum(1, keepdims=True)


def cross_entropy(x: Any, label: Any) -> Any:
    """A mean over rows of what is taken from each by an index."""
    logs = jax.nn.log_softmax(x, 1)
    return -jnp.take_along_axis(logs, label[:, None], 1).mean()


def cross_entropy_and_gradient(x: Any, label: Any) -> Any:
    return jax.value_and_grad(cross_entropy)(x, label)


def standard_scores(x: Any, *_: Any) -> Any:
    """Passes over rows of two lengths, and values of rows that are stored."""
    half = x[:, ::2]
    return (x - x.max(1, keepdims=True)) * half.sum(1, keepdims=True), half - half.mean(1, keepdims=True), x.min(1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        softmax,
        layer_norm_gradient,
        scale_gradient,
        cross_entropy,
        cross_entropy_and_gradient,
        standard_scores,
    )
}


def arguments(name: str, rows: int, places: int, dtype: Any, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x = (2 * rng.standard_normal((rows, places))).astype(dtype)
    if "entropy" in name:
        return [x, rng.integers(0, places, rows).astype(np.int32)]
    return [x] if name in ("softmax", "standard_scores") else [x, rng.standard_normal((rows, places)).astype(dtype)]


def exact(name: str, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """In float64, by XLA."""
    with jax.enable_x64(True):
        wide = [jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else jnp.asarray(a) for a in args]
        return [np.asarray(r) for r in jax.tree.leaves(jax.jit(FUNCTIONS[name])(*wide))]


@dataclass(frozen=True)
class Made:
    """A function's kernels, of which the largest clusters have ``cluster`` blocks."""

    stitched: Stitched
    cluster: int


def made(
    name: str, args: Sequence[np.ndarray], cluster: int, device: Device = H200, templates: Sequence[Template] = ()
) -> Made:
    """The function's kernels as the scheduler lays them out for clusters of ``cluster`` blocks, or by templates."""
    if "entropy" in name:  # Where all pays, a few rows are one, in which each has its place.
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args]
        found = stitch_capture(capture(FUNCTIONS[name], shapes, device), device)
    else:
        found = forced.stitched(forced.hlo_of(FUNCTIONS[name], *args), device)
    kernels = []
    for k in found.kernels:
        patterns = [p.pattern for p in k.scheduled.parts]
        laid_out = schedule(k.scheduled.graph, patterns, device, k.source.name, templates=templates, cluster=cluster)
        kernels.append(replace(k, scheduled=laid_out, source=emit(laid_out)))
    return Made(replace(found, kernels=tuple(kernels)), max(k.scheduled.cluster for k in kernels))
