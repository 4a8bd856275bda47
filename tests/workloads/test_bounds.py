"""Every kernel of every workload, run by itself between guard zones: none writes outside its outputs."""

from __future__ import annotations

import ctypes
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bench.workloads import WORKLOADS
from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch import devices
from jax_stitch.backend.compile import HostKernel, compile_all
from jax_stitch.emit import KernelSource
from jax_stitch.frontend.capture import capture
from jax_stitch.graph.model import TensorType
from jax_stitch.pipeline import stitch_capture

GUARD = 4096
FILL = 0xAB


class Guarded:
    """A buffer as aligned as JAX's, with ``GUARD`` bytes of ``FILL`` on either side.

    Filled with them itself until written.
    """

    def __init__(self, tensor: TensorType, values: np.ndarray | None = None) -> None:
        self.tensor = tensor
        self.bytes = tensor.size * ELEMENT_TYPES[tensor.dtype].numpy.itemsize
        room = np.full(self.bytes + 2 * GUARD + 64, FILL, np.uint8)
        start = -room.ctypes.data % 64
        self.zone = room[start : start + self.bytes + 2 * GUARD]
        self.inside = self.zone[GUARD : GUARD + self.bytes]
        if values is not None:
            self.inside[:] = values.view(np.uint8)

    @property
    def intact(self) -> bool:
        """Whether both guards are as they were."""
        return bool((self.zone[:GUARD] == FILL).all() and (self.zone[GUARD + self.bytes :] == FILL).all())

    @property
    def untouched(self) -> bool:
        """Whether nothing was written where something should be (a result of nothing but ``FILL`` bytes is none)."""
        return self.bytes > 0 and bool((self.inside == FILL).all())


def values(tensor: TensorType, generator: np.random.Generator) -> np.ndarray:
    """Normally distributed floats; zeros and ones for all else, so that they are good indices."""
    element = ELEMENT_TYPES[tensor.dtype]
    made = generator.standard_normal(tensor.size) if element.kind == "float" else generator.integers(0, 2, tensor.size)
    return made.astype(element.numpy)


def run(source: KernelSource, kernel: HostKernel) -> tuple[list[Guarded], list[Guarded]]:
    """Runs all blocks of all phases of a kernel; returns its guarded inputs and outputs."""
    generator = np.random.default_rng(0)
    inputs = [Guarded(t, values(t, generator)) for t in source.inputs]
    outputs = [Guarded(t) for t in source.outputs]
    buffers = (ctypes.c_void_p * (len(inputs) + len(outputs) + 1))(
        *(b.zone.ctypes.data + GUARD for b in (*inputs, *outputs))
    )
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    function(ctypes.addressof(buffers), 0, sum(source.host_phases))
    return inputs, outputs


def cases() -> list[Any]:
    found = []
    for workload in WORKLOADS.values():
        # Up to a minute of host compilation each.
        marks = [pytest.mark.slow] if workload.family == "optimizer" or workload.name == "training_step" else []
        for device in ("cpu", "h200"):
            found.append(pytest.param(workload.name, device, id=f"{workload.name}-{device}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "device"), cases())
def test_kernels_stay_inside_their_buffers(name: str, device: str) -> None:
    workload = WORKLOADS[name]
    function, shapes = workload.abstract(workload.test_sizes[1], jnp.bfloat16)
    target = devices.get(device)
    sources = [k.source for k in stitch_capture(capture(function, shapes, target), target).kernels]
    for source, kernel in zip(sources, compile_all(sources, "host", None), strict=True):
        assert isinstance(kernel, HostKernel)
        before = [values(t, g).tobytes() for g in [np.random.default_rng(0)] for t in source.inputs]
        inputs, outputs = run(source, kernel)
        assert [b.inside.tobytes() for b in inputs] == before, f"{source.name} writes to an input"
        assert all(b.intact for b in (*inputs, *outputs)), f"{source.name} writes outside its buffers"
        unwritten = [str(b.tensor) for b in outputs if b.untouched]
        assert not unwritten, f"{source.name} leaves outputs unwritten: {unwritten}"
