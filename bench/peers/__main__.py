"""``python -m bench.peers REQUEST RESULT``: one peer in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import peers
from bench.files import write_json

GPU_BLOCK, CPU_BLOCK = 1 << 30, 256 << 20
"""Bytes copied: well above any cache."""


def main(argv: Sequence[str]) -> int:
    """Answers one request."""
    asked, answer = map(Path, argv)
    request = json.loads(asked.read_text(encoding="utf-8"))
    write_json(answer, {"stage": request["peer"]})
    found: Mapping[str, Any]
    match request["peer"]:
        case peers.COPY:
            found = {"bytes_per_second": _copy(request["device"])}
        case peers.FIRST_USE:
            found = _first_use()
        case peer:
            from bench.peers import torch_peer

            found = torch_peer.timed(
                request["workload"],
                tuple(request["size"]),
                request["dtype"],
                "cuda" if request["device"] == "cuda" else "cpu",
                request["seconds"],
                compiled=peer == peers.COMPILED,
            )
    write_json(answer, {"stage": "done", **found})
    return 0


def _copy(device: str) -> float:
    from jax_stitch.devices import bandwidth

    if device == "cpu":
        return bandwidth.measure(len(os.sched_getaffinity(0)), CPU_BLOCK)
    import jax
    import jax.numpy as jnp

    from jax_stitch.timing import time_in_turn

    x = jnp.ones(GPU_BLOCK // 4, jnp.float32)
    copy = jax.jit(jnp.copy)
    return 2 * x.nbytes / time_in_turn({"copy": lambda: copy(x)})["copy"].median


def _first_use() -> Mapping[str, Any]:
    from bench.measure import first_use

    first_use()
    return {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
