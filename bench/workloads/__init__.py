"""The functions that tests and benchmarks run: plain JAX, Flax and Optax, nothing of JAX Stitch.

``bench.workloads:NAME`` is the function of a workload at its benchmarked size, ``bench.workloads:NAME.args`` makes its
arguments. Without Flax or Optax, the families that need them are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from bench.workloads.base import Workload

OPTIONAL = ("flax", "optax")
"""Packages that a machine on which kernels are tried may lack."""


def _of(family: str, name: str = "WORKLOADS") -> Iterable[Workload]:
    """The workloads of a family; none where it needs a package that is not here."""
    try:
        module = import_module(f"bench.workloads.{family}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in OPTIONAL:
            raise
        return ()
    return tuple(getattr(module, name))


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for family in ("softmax", "normalisation", "loss", "model", "optimizer")
    for workload in _of(family)
}
"""The design's table: every test of kernels runs these."""

PROGRAMS: dict[str, Workload] = {
    workload.name: workload
    for workloads in (
        _of("statistics"),
        _of("optimizer", "OTHERS"),
        _of("classics"),
        _of("recurrent"),
        _of("environments"),
        _of("speech"),
        _of("vision"),
        _of("translation"),
        _of("dialogue"),
        _of("recommendation"),
        _of("transformer"),
        _of("bert"),
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
