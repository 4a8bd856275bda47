"""What ``verify=True`` adds to a first call on a CPU: each new kernel runs once beside XLA's own computation."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from unittest import mock

import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from bench.about import about
from bench.files import write_json
from bench.suites import Case
from jax_stitch import devices, stitch_jit
from jax_stitch.frontend.capture import capture
from jax_stitch.jit.stitching.make import stitched
from jax_stitch.jit.verify.kernels import verified
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.options.verification import Verify
from jax_stitch.util.store.location import FOLDER_VARIABLE


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one workload, with no cache: to plan it, to compile its kernels, and to verify them."""

    workload: str
    kernels: int
    planning: float
    compiling: float
    verifying: float
    not_run: int
    """Kernels that are not verified, since that would take long."""
    refused: int

    @property
    def ratio(self) -> float:
        """How many times as long planning and compiling takes with verifying."""
        return 1 + self.verifying / (self.planning + self.compiling)


def run(cases: Sequence[Case], seconds: float, json: Path | None, console: Console) -> int:
    """Measures the cases until ``seconds`` are over and prints a table; 1 where a kernel was refused."""
    found: list[Cost] = []
    end = time.monotonic() + seconds
    stitch_jit(lambda x: x - x.mean(-1, keepdims=True))(jnp.ones((64, 64)))  # What calls kernels is compiled.
    for case in cases:
        if time.monotonic() > end:
            console.print(f"no time is left for the other {len(cases) - len(found)} workloads")
            break
        found.append(_cost(case))
        if json is not None:
            write_json(json, {"about": about("cpu"), "costs": [{**asdict(c), "ratio": c.ratio} for c in found]})
    table = Table("workload", "kernels", "planning s", "compiling s", "verifying s", "times", "not run", "refused")
    for c in found:
        times = f"{c.planning:.2f}", f"{c.compiling:.2f}", f"{c.verifying:.2f}", f"{c.ratio:.2f}"
        table.add_row(c.workload, str(c.kernels), *times, str(c.not_run), str(c.refused))
    console.print(table)
    stitched_ones = [c.ratio for c in found if c.kernels]
    if stitched_ones:
        console.print(f"geometric mean of {len(stitched_ones)}: {statistics.geometric_mean(stitched_ones):.2f} times")
    return int(any(c.refused for c in found))


def _cost(case: Case) -> Cost:
    device = devices.get("cpu")
    function, args = case.workload.abstract(case.size, jnp.float32)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {FOLDER_VARIABLE: folder}):
        times = [time.perf_counter()]
        made = stitched(capture(function, args, device), device, device, PlannerName.BEAM, "", Autotune.OFF)
        times.append(time.perf_counter())
        made.compile_kernels("host")
        times.append(time.perf_counter())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            left = verified(made, device, Verify.REFUSE)
        times.append(time.perf_counter())
    planning, compiling, verifying = (b - a for a, b in pairwise(times))
    not_run = sum("was not run" in note for note in left.plan.notes)
    refused = len(made.kernels) - len(left.kernels)
    return Cost(case.workload.name, len(made.kernels), planning, compiling, verifying, not_run, refused)
