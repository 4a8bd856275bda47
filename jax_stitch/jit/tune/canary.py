"""Does this version of XLA launch our kernels? Tried with one small kernel, once for each version, device and driver.

XLA's call for PTX is internal to XLA: a version may come that does not know it, or does something else. Where it does
not give what it has to, our own handler is tried (``backend/launch/gpu.py``).
"""

from __future__ import annotations

import json
import logging

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from jax_stitch.backend.compile import CompilerTrouble, compile_kernel, target_of
from jax_stitch.backend.launch import call, choice
from jax_stitch.devices import Device
from jax_stitch.emit import KernelSource
from jax_stitch.graph.model import TensorType
from jax_stitch.jit import library
from jax_stitch.jit.tune.outside_tracing import apart
from jax_stitch.util import store
from jax_stitch.util.options.launchers import Launcher

_logger = logging.getLogger(__name__)

_SIZE, _BLOCK = 1000, 64
_KIND = "devices"

_TEXT = """#include "stitch.h"
extern "C" __global__ void __launch_bounds__(64) canary(const float* in0, float* out0, float* out1,
                                                       unsigned long long* arrivals) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < 1000) out0[i] = in0[i] + 1;
  ST_LAST_BLOCK_ALONE
  if (threadIdx.x == 0) out1[0] = out0[0] + out0[999];
}
"""


class NoLauncher(CompilerTrouble):
    """Neither XLA's own call nor our handler launches a kernel on this machine."""


def choose(device: Device) -> None:
    """Settle how kernels are launched on an attached GPU: what is known of it, else what works.

    Raises ``NoLauncher``, which has the reasons.
    """
    known = known_launcher(device)
    if known is not None:
        return choice.settle(known)
    failures: list[str] = []
    for launcher in Launcher:
        if failure := fault(device, launcher):
            failures.append(f"{launcher.value}: {failure}")
            continue
        choice.settle(launcher)
        if failures:
            _logger.warning("kernels are launched by JAX Stitch's own handler, since XLA's does not: %s", failures[0])
        return store.write(_KIND, _entry(device), json.dumps(launcher.value).encode())
    raise NoLauncher(
        f"no kernel can be launched on {device.description} with jaxlib {jaxlib.__version__}: {'; '.join(failures)}"
    )


def known_launcher(device: Device) -> Launcher | None:
    """Return the way that worked when it was tried on this device, here and with this driver; None before that."""
    known = store.read(_KIND, _entry(device))
    return None if known is None else Launcher(json.loads(known))


def _entry(device: Device) -> str:
    return f"launcher-{library.station_of(device).key}.json"


def fault(device: Device, launcher: Launcher) -> str:
    """Return what is wrong about launches of one kind; empty if nothing is."""
    try:
        kernel, source = compile_kernel(_source(), target_of(device)), _source()
        given = np.arange(_SIZE, dtype=np.float32)
        with choice.using(launcher), apart(device):
            results = jax.jit(lambda x: call(kernel, source, x))(jnp.asarray(given))
            each, ends = map(np.asarray, results)
    except Exception as error:
        return (str(error).strip() or repr(error)).splitlines()[0]
    if (each == given + 1).all() and ends[0] == _SIZE + 1:
        return ""
    return "the kernel's results are wrong"


def _source() -> KernelSource:
    values, one = TensorType("f32", (_SIZE,)), TensorType("f32", (1,))
    grid = -(-_SIZE // _BLOCK)
    return KernelSource("canary", _TEXT, (values,), (values, one), grid, _BLOCK, 0, phases=(grid, 1))
