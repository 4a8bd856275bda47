"""Times by the GPU's own clock: events around a launch, with nothing of earlier launches in the level-2 cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_stitch.devices.attached.properties import attribute
from jax_stitch.devices.attached.provided import cupy

LEAST_ROUNDS = 8
_MOST_ROUNDS = 1000
_L2_BYTES = 38
"""Of ``CUdevice_attribute``."""


def elapsed(launch: Callable[[], None], seconds: float, *, cold: bool = True) -> list[float]:
    """Return seconds of a launch, for each of as many rounds as fit ``seconds``, and at least ``LEAST_ROUNDS``.

    ``cold``: before each, memory of twice the size of the level-2 cache is written. That also keeps the GPU busy while
    the host comes after with the launch, so that no gap is measured.
    """
    cuda = cupy().cuda
    times: list[float] = []
    start, stop = cuda.Event(), cuda.Event()
    spare = _spare() if cold else None
    launch()  # What is done at a first launch alone.
    end = time.perf_counter() + seconds
    while len(times) < LEAST_ROUNDS or (time.perf_counter() < end and len(times) < _MOST_ROUNDS):
        if spare is not None:
            spare.data.memset_async(len(times) % 256, spare.nbytes)
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        times.append(cuda.get_elapsed_time(start, stop) * 1e-3)
    return times


def copy_bandwidth(size: int, seconds: float = 0.2) -> float:
    """Return bytes read and written per second by the driver's own copy of ``size`` bytes, from cold memory."""
    source, target = (cupy().empty(size, np.uint8) for _ in range(2))
    return 2 * size / min(elapsed(lambda: target.data.copy_from_device_async(source.data, size), seconds))


def _spare() -> Any:
    ordinal = int(cupy().cuda.Device().id)
    return cupy().empty(2 * attribute(_L2_BYTES, ordinal), np.uint8)
