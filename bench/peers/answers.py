"""What a worker does for a peer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench import peers
from bench.worker import Tell

GPU_BLOCK, CPU_BLOCK = 1 << 30, 256 << 20
"""Bytes copied: well above any cache."""


def answer(request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The bandwidth of a copy, or the times of a workload; see ``bench.peers``."""
    tell(request["peer"])
    match request["peer"]:
        case peers.COPY:
            return {"bytes_per_second": _copy(request["device"])}
        case peers.FIRST_USE:
            from bench.measure import first_use

            first_use()
            return {}
        case peer:
            from bench.peers import torch_peer

            device = "cuda" if request["device"] == "cuda" else "cpu"
            size, compiled = tuple(request["size"]), peer == peers.COMPILED
            return torch_peer.timed(
                request["workload"], size, request["dtype"], device, request["seconds"], compiled=compiled
            )


def _copy(device: str) -> float:
    from jax_stitch.devices import bandwidth

    if device == "cpu":
        return bandwidth.measure(len(os.sched_getaffinity(0)), CPU_BLOCK)
    import jax
    import jax.numpy as jnp

    from jax_stitch.util.timing import time_in_turn

    x = jnp.ones(GPU_BLOCK // 4, jnp.float32)
    copy = jax.jit(jnp.copy)
    return 2 * x.nbytes / time_in_turn({"copy": lambda: copy(x)})["copy"].median
