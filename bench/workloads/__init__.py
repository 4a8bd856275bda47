"""The functions that tests and benchmarks run: plain JAX, Flax and Optax, nothing of JAX Stitch."""

from __future__ import annotations

from bench.workloads import loss, model, normalisation, optimizer, softmax
from bench.workloads.base import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (softmax, normalisation, loss, model, optimizer)
    for workload in module.WORKLOADS
}

__all__ = ["WORKLOADS", "Workload"]
