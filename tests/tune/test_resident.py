"""Blocks that wait for each other have to run together: counted once more with what the compiler has given them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch.backend.compile import PtxKernel, occupancy, resident_blocks
from jax_stitch.jit.tune.in_time import compiled_in_time
from jax_stitch.jit.tune.resident import all_resident
from tests.fusion import forced

X = jax.ShapeDtypeStruct((4000, 700), jnp.float32)


def columns(x: Any) -> Any:
    """Partial sums of columns, which the blocks add up behind a barrier."""
    y = x - x.mean(1, keepdims=True)
    return y, y.sum(0), (y * x).sum(0)


@pytest.mark.parametrize("name", ("t4", "a100", "l4", "h100", "h200", "b200"))
def test_what_is_planned_fits(name: str) -> None:
    device = forced.device(name)
    stitched = forced.stitched(forced.hlo_of(columns, X), device)
    left, kernels = compiled_in_time(stitched, str(device.sm))
    assert left is stitched
    waiting = [k for k in left.kernels if k.scheduled.residency is not None]
    assert waiting
    compiled = dict(zip(map(id, left.sources), kernels, strict=True))
    for kernel in waiting:
        made, source = compiled[id(kernel.source)], kernel.source
        assert isinstance(made, PtxKernel)
        held = occupancy(made.registers, source.shared_bytes + made.shared_bytes, source.block, device)
        assert source.grid <= resident_blocks(held, device, source.cluster)


@pytest.mark.parametrize("changes", ({"registers": 255}, {"shared_bytes": 200 << 10}))
def test_what_does_not_fit_is_left_to_xla(changes: dict[str, int]) -> None:
    """A compiler that used more than it was allowed: the launch would hang the GPU."""
    device = forced.device("h200")
    stitched = forced.stitched(forced.hlo_of(columns, X), device)
    _, kernels = compiled_in_time(stitched, "sm_90")
    larger = tuple(replace(k, **changes) for k in kernels if isinstance(k, PtxKernel))
    left, rest = all_resident(stitched, larger)
    assert len(rest) == len(left.sources) < len(kernels)
    assert any("blocks wait for each other" in note for note in left.plan.notes)
