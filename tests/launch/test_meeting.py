"""Launches whose blocks meet: each call has a word of its own to count them in, in whatever program and however often.

With a counter for each kernel of a function, as it was, a function called twice in a program, or two functions, could
share one: their launches, at the same time, would have hung or read what was not there yet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.backend.compile import compile_ptx
from jax_stitch.backend.launch import call
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.backend.launch.ptx import MAX_MEETING
from jax_stitch.emit.source import KernelSource
from jax_stitch.frontend.capture import capture
from jax_stitch.graph.model import TensorType
from jax_stitch.pipeline import stitch_capture
from tests.fusion import forced
from tests.launch.test_ptx import calls, described
from tests.loops.test_block_loops import SPREAD, planned

__all__ = ["described"]


def whole(x: jax.Array) -> jax.Array:
    return (x - x.mean()) / x.std()


def kernel_of(kind: str) -> KernelSource:
    """The kernel, for an H200, whose blocks meet in one of the three ways."""
    if kind == "ST_GRID_SYNC":
        made = planned("sinkhorn", SPREAD)
    elif kind == "ST_GRID_BARRIER":
        made = stitch_capture(capture(whole, (jnp.ones((1024, 1024)),), devices.get("cpu")), devices.get("h200"))
    else:
        made = forced.stitched(forced.hlo_of(whole, jnp.ones((1024, 1024))), devices.get("h200"), 0)
    return next(k.source for k in made.kernels if kind in k.source.text)


@pytest.mark.parametrize("kind", ["ST_GRID_BARRIER", "ST_LAST_BLOCK_ALONE", "ST_GRID_SYNC"])
def test_each_call_has_a_word_of_its_own(described: Any, kind: str) -> None:
    source = kernel_of(kind)
    # All leave, or the last takes the mark away: one of both, once.
    assert source.text.count("ST_LEAVE_GRID") + source.text.count("ST_LAST_BLOCK_ALONE") == 1
    kernel = compile_ptx(source, "sm_90")
    arguments = [jax.ShapeDtypeStruct(t.dims, numpy_dtype(t), sharding=described) for t in source.inputs]

    def twice(*arrays: jax.Array) -> Any:
        first = call(kernel, source, *arrays)
        return first, call(kernel, source, *(x + first[0].sum().astype(x.dtype) for x in arrays))

    lines = calls(jax.jit(twice).lower(*arguments).compile().as_text())
    assert len(lines) == 2
    for line in lines:
        results, operands = line.split(" custom-call(")
        assert results.count("u32[2]") == 1
        # Nothing makes the word ready, which would be a launch, and no other call has it.
        assert "u32[2]" not in operands.split("custom_call_target")[0]


def test_more_blocks_than_can_be_counted() -> None:
    one = TensorType("f32", (4,))
    kernel = compile_ptx(KernelSource("k", 'extern "C" __global__ void k() {}', (one,), (one,), 1, 32, 0), "sm_90")
    source = KernelSource("k", "", (one,), (one,), MAX_MEETING + 1, 32, 0, phases=(1, 1))
    with pytest.raises(ValueError, match="65536 can meet"):
        jax.eval_shape(lambda x: call(kernel, source, x), np.zeros(4, np.float32))
