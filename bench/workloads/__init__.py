"""The functions that tests and benchmarks run: plain JAX, Flax and Optax, nothing of JAX Stitch.

``bench.workloads:NAME`` is the function of a workload at its benchmarked size, ``bench.workloads:NAME.args`` makes its
arguments.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import (
    bert,
    classics,
    dialogue,
    environments,
    loss,
    model,
    normalisation,
    optimizer,
    recommendation,
    recurrent,
    softmax,
    speech,
    statistics,
    transformer,
    translation,
    vision,
)
from bench.workloads.base import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (softmax, normalisation, loss, model, optimizer)
    for workload in module.WORKLOADS
}
"""The design's table: every test of kernels runs these."""

PROGRAMS: dict[str, Workload] = {
    workload.name: workload
    for workloads in (
        statistics.WORKLOADS,
        optimizer.OTHERS,
        classics.WORKLOADS,
        recurrent.WORKLOADS,
        environments.WORKLOADS,
        speech.WORKLOADS,
        vision.WORKLOADS,
        translation.WORKLOADS,
        dialogue.WORKLOADS,
        recommendation.WORKLOADS,
        transformer.WORKLOADS,
        bert.WORKLOADS,
    )
    for workload in workloads
}
"""The papers' programs, and what else benchmarks run."""

ALL: dict[str, Workload] = WORKLOADS | PROGRAMS


def __getattr__(name: str) -> Any:
    if name in ALL:
        return ALL[name].function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ALL", "PROGRAMS", "WORKLOADS", "Workload"]
