"""The latency-evaluator against measurement: every kernel of the workloads by itself, predicted and timed.

The device's constants come of synthetic programs (``python -m jax_stitch measure``), never of the kernels judged here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from scipy.stats import spearmanr

from bench.about import about
from bench.clock import begun
from bench.files import write_json
from bench.suites import Case
from jax_stitch import devices
from jax_stitch.analysis.patterns.nest import Nest
from jax_stitch.backend.compile import PtxKernel, target_of
from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.devices import Device
from jax_stitch.frontend.capture import capture
from jax_stitch.frontend.capture.errors import Unstitchable
from jax_stitch.jit.tune.arguments import argument_sets
from jax_stitch.jit.tune.spills import fit
from jax_stitch.latency import constants_of, latency
from jax_stitch.latency.timing import clock_of
from jax_stitch.pipeline import StitchedKernel, stitch_capture
from jax_stitch.schedule.work import work_of
from jax_stitch.util.formatting import format_seconds, text_table

LEAST_CORRELATION, MOST_ERROR = 0.85, 0.30
"""Spearman's rank correlation and the median relative error that the evaluator has to reach."""
LEAST_KERNELS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel; times are in seconds."""

    workload: str
    size: tuple[int, ...]
    kernel: str
    bytes: int
    predicted: float
    measured: float
    bound: str
    """What most of the prediction is: "launch", "memory" or "instructions"."""

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rows say together."""

    kernels: int
    correlation: float
    error: float

    @property
    def enough(self) -> bool:
        """Whether these are enough kernels to judge by."""
        return self.kernels >= LEAST_KERNELS

    @property
    def agrees(self) -> bool:
        """Whether the evaluator is as good as it has to be."""
        return self.correlation >= LEAST_CORRELATION and self.error <= MOST_ERROR

    def __str__(self) -> str:
        return (
            f"{self.kernels} kernels: rank correlation {self.correlation:.3f} (at least {LEAST_CORRELATION}), median "
            f"error {self.error:.0%} (at most {MOST_ERROR:.0%})"
        )


def verdict(rows: Sequence[Row]) -> Verdict:
    """Of at least two rows."""
    correlation = spearmanr([r.predicted for r in rows], [r.measured for r in rows]).statistic
    return Verdict(len(rows), float(correlation), statistics.median(r.error for r in rows))


def run(
    cases: Sequence[Case], kind: str, seconds: float, budget: float, folder: Path | None, console: Console
) -> Verdict | None:
    """Predicts and times the kernels of each case on the device in use ("cpu" or "cuda"); None for less than two.

    ``seconds`` are spent on each kernel; after ``budget`` seconds no further case is begun. With a ``folder``, rows and
    scatter plot are written there.
    """
    device = devices.get("cpu" if kind == "cpu" else None)
    known = constants_of(device)
    console.print(f"{device}; constants: {known.source}", highlight=False)
    rows: list[Row] = []
    left: list[str] = []
    end = begun() + budget
    for case in cases:
        name = f"{case.workload.name} [{' x '.join(map(str, case.size))}]"
        if time.monotonic() > end:
            left.append(f"{name}: not reached in {budget:.0f} s")
            continue
        try:
            found = list(of_case(case, device, seconds))
        except Unstitchable as reason:
            left.append(f"{name}: {reason}")
            continue
        rows += found
        console.print(f"{name}: {len(found)} kernels, {len(rows)} so far", highlight=False)
        if folder is not None:
            facts = about(kind) | {"constants": known.source, "cores used": device.multiprocessors}
            write_json(folder / f"evaluators_{kind}.json", {"about": facts, "rows": [asdict(r) for r in rows]})
    if len(rows) < 2:
        console.print("\n".join(["too few kernels to judge", *left]), highlight=False)
        return None
    found_verdict = verdict(rows)
    console.print(table(rows), highlight=False)
    console.print("\n".join(left), highlight=False)
    console.print(str(found_verdict), highlight=False)
    if folder is not None and find_spec("matplotlib") is None:
        console.print("no plot: matplotlib is not installed", highlight=False)
    elif folder is not None:
        from bench.plots import scatter

        for path in scatter(rows, f"{kind}: {found_verdict}", folder / f"evaluators_{kind}"):
            console.print(str(path), highlight=False)
    return found_verdict


def of_case(case: Case, device: Device, seconds: float) -> Iterator[Row]:
    """The kernels of a workload, like ones once. Loops whose length depends on data are left out: nothing can predict
    them.
    """
    captured = capture(*case.workload.abstract(case.size, jnp.float32), device)
    target = target_of(device)
    stitched = fit(stitch_capture(captured, device), target)
    compiled = dict(zip(map(id, stitched.sources), stitched.compile_kernels(target), strict=True))
    seen: set[int] = set()
    for kernel in stitched.kernels:
        source = kernel.source
        if id(source) in seen or _is_open(kernel):
            continue
        seen.add(id(source))
        made = compiled[id(source)]
        foretold = latency(kernel.scheduled, device, made if isinstance(made, PtxKernel) else None)
        types = [jax.ShapeDtypeStruct(t.dims, numpy_dtype(t)) for t in source.inputs]
        with jax.enable_x64(True):  # else 64-bit arguments would be narrowed
            (arrays,) = argument_sets(types, device, in_cache=True)
        measured = clock_of(device)(made, source, arrays, device, work=work_of(kernel.scheduled), seconds=seconds)
        moved = sum(p.bytes for p in foretold.phases)
        yield Row(case.workload.name, case.size, source.name, moved, foretold.seconds, measured, foretold.bound)


def _is_open(kernel: StitchedKernel) -> bool:
    nests = [p.pattern.loop for p in kernel.scheduled.parts if isinstance(p.pattern.loop, Nest)]
    return any(level.trips is None for nest in nests for level in nest.loops)


def table(rows: Sequence[Row]) -> str:
    """The rows, the worst predicted last."""
    cells = [
        (
            f"{r.workload} [{' x '.join(map(str, r.size))}]",
            r.kernel,
            format_seconds(r.predicted),
            format_seconds(r.measured),
            f"{r.predicted / r.measured:.2f}",
            r.bound,
        )
        for r in sorted(rows, key=lambda r: r.error)
    ]
    return text_table(("workload", "kernel", "predicted", "measured", "ratio", "bound by"), cells, right=(2, 3, 4))
