"""Which workloads belong together, and the sizes at which they show how time grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.workloads import ALL, Workload
from bench.workloads.base import Size


@dataclass(frozen=True, slots=True)
class Case:
    """A workload at one size; ``checked`` is the size at which results are compared."""

    workload: Workload
    size: Size
    checked: Size

    @property
    def key(self) -> tuple[str, Size]:
        return self.workload.name, self.size


SUITES: dict[str, tuple[str, ...]] = {
    "micro": ("normalisation", "softmax", "loss", "statistics"),
    "optimizers": ("optimizer",),
    "loops": ("environments", "recurrent"),
    "models": (
        *("classics", "speech", "vision", "translation", "dialogue"),
        *("recommendation", "transformer", "bert", "model"),
    ),
}
"""Families of workloads by suite, the most important first."""

SCALING: dict[str, tuple[Size, ...]] = {
    "layer_norm_and_gradient": tuple((rows, 1024) for rows in (64, 256, 1024, 4096, 16384)),
    "softmax_first": tuple((rows, 1024) for rows in (64, 256, 1024, 4096, 16384)),
    "cart_pole": tuple((batch, 200) for batch in (16, 64, 256, 1024, 4096)),
    "adamw": tuple((12, width) for width in (32, 64, 128, 256, 512)),
}
"""The ``scaling`` suite: sizes at which only the first number, or the width, grows."""

NAMES = (*SUITES, "scaling", "all")


def cases(suite: str, *, only: Sequence[str] = (), small: bool = False, gpu: bool = False) -> list[Case]:
    """The cases of a suite, in order; ``only`` names workloads, ``small`` takes test sizes, ``gpu`` the papers'."""
    if suite == "scaling":
        return [
            Case(ALL[name], size, ALL[name].checked_size or size)
            for name, sizes in SCALING.items()
            for size in (sizes[:2] if small else sizes)
            if not only or name in only
        ]
    families = [family for name in (SUITES if suite == "all" else (suite,)) for family in SUITES[name]]
    chosen = [w for family in families for w in ALL.values() if w.family == family]
    if only:
        chosen = [w for w in chosen if w.name in only]
    return [_case(w, small, gpu) for w in chosen]


def _case(workload: Workload, small: bool, gpu: bool) -> Case:
    if small:
        return Case(workload, workload.test_sizes[0], workload.test_sizes[0])
    return Case(workload, workload.gpu_size if gpu else workload.size, workload.checked_size or workload.size)
