"""Which candidates are worth a program of XLA's to time them in: on an attached GPU their kernels alone say so first.

A kernel is timed by the GPU's own clock as soon as it is compiled (``backend/launch/direct.py``); a program that XLA
compiles for each candidate is most of what ``autotune`` takes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import jax

from jax_stitch.backend.compile import Kernel, PtxKernel
from jax_stitch.backend.launch import direct
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import Device
from jax_stitch.jit.tune.arguments import argument_sets
from jax_stitch.jit.tune.candidates import Contender

_logger = logging.getLogger(__name__)

KEPT = 3
"""Candidates that are timed in programs, besides the planned one."""
_SECONDS = 0.02
"""For each kernel."""


def fastest(
    contenders: Sequence[Contender], compiled: Mapping[str, Mapping[int, Kernel]], device: Device
) -> Sequence[Contender]:
    """Return the planned candidate, which is the first, and those whose kernels take least; all where that cannot be
    asked: on a CPU, or without CuPy.

    ``compiled`` has the kernels of each candidate by its key and by the identity of their sources.
    """
    if len(contenders) <= 1 + KEPT or device.target.is_host or not direct.is_possible():
        return contenders
    planned, *others = contenders
    try:
        taken = {c.key: _seconds(c, compiled[c.key], device) for c in others}
    except Exception as trouble:  # No memory beside JAX's, or CuPy's own: then programs tell, as without it.
        _logger.debug("not timed alone: %s", trouble)
        return contenders
    _logger.debug("timed alone: %s", {c.name: taken[c.key] for c in others})
    return [planned, *sorted(others, key=lambda c: taken[c.key])[:KEPT]]


def _seconds(candidate: Contender, kernels: Mapping[int, Kernel], device: Device) -> float:
    """Return what its kernels take one after another, each on arguments of its own and with a cold cache."""
    total = 0.0
    for kernel in candidate.kernels:
        made = kernels[id(kernel.source)]
        assert isinstance(made, PtxKernel)
        types = [jax.ShapeDtypeStruct(t.dims, numpy_dtype(t)) for t in kernel.source.inputs]
        (arguments, *_) = argument_sets(types, device, in_cache=True)
        total += direct.Direct.of(made, kernel.source).seconds(arguments, _SECONDS)
    return total
