"""On a CPU a plan that saves calls is not taken where it reads large arrays once more for them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from bench.workloads import ALL
from jax_stitch.frontend.capture import capture
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced


@pytest.mark.parametrize(("cache", "kernels"), [(1 << 20, 1), (1 << 30, None)])
def test_group_norm_reads_its_image_once(cache: int, kernels: int | None) -> None:
    """What is left of two vectors, a step of its own, took their sums from the kernel that reads the image: two read
    it then, twice as long. Where all stays in the cache, calls are what counts.
    """
    fun, shapes = ALL["group_norm_and_gradient"].abstract((8, 28, 28, 64), jnp.dtype("float32"))
    cpu = forced.device("cpu", l2_bytes=cache, multiprocessors=2)
    made = stitch_capture(capture(fun, shapes, cpu), cpu)
    image = [k for k in made.kernels if any(t.size > 8 * 28 * 28 for t in k.source.inputs)]
    assert len(image) == kernels if kernels is not None else image
