"""Devices and argument types of the tests of captures."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import cuda_plugin_installed

CPU = devices.get("cpu")
H200 = devices.get("h200")


needs_plugin = pytest.mark.skipif(not cuda_plugin_installed(), reason="the CUDA plugin is not installed")
on_both = pytest.mark.parametrize("device", [CPU, pytest.param(H200, marks=needs_plugin)], ids=["cpu", "h200"])


def struct(*dims: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)
