"""Programs that are run while JAX is tracing or lowering another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from jax_stitch.devices import Device


@contextmanager
def apart(device: Device) -> Iterator[None]:
    """Run programs that are made inside at once, on ``device``, whatever JAX is tracing or lowering around them."""
    (target, *_) = jax.local_devices(backend=device.target.platform)
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.default_device(target):
        yield
