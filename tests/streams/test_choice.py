"""Which streams become loops over tiles, by estimates for described processors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import stitch_jit
from tests.streams.programs import attention


def plan(*shape: int, device: str = "zen3") -> Any:
    return stitch_jit(attention).plan(*(jax.ShapeDtypeStruct(shape, jnp.float32),) * 3, device=device)


def loops(plan: Any) -> int:
    return sum("a loop of" in k.source for k in plan.kernels)


@pytest.mark.parametrize("device", ["zen3", "zen4", "sapphire-rapids", "neoverse-n1"])
def test_scores_that_leave_the_cache_are_never_written(device: str) -> None:
    """Catches an estimate of XLA's time that makes nothing worth a kernel."""
    made = plan(2, 1024, 8, 64, device=device)
    assert loops(made) == 1
    assert made.bytes < made.xla_bytes / 1.4


def test_one_small_row_is_left() -> None:
    """One core would do all the work, and calls around it take as long: measured 0.7 of ``jax.jit``."""
    assert not loops(plan(1, 64, 1, 64))


def test_gpus_have_no_loops_over_tiles_yet() -> None:
    assert not loops(plan(2, 1024, 8, 64, device="h200"))
