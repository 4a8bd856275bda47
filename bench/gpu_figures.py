"""What was measured on an attached GPU, for the page of measurements and README: see ``bench.figures``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from scipy.stats import spearmanr

from bench.files import Results
from bench.suites import SUITES
from bench.tables import markdown, seconds
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

ORDER = ("micro", "loops", "optimizers", "models")
HEAD = ("speed-up, geometric mean", "worst", "best")


def short(gpu: Results) -> str:
    """The suites that were run there, by the kernels' own time and by that of calls."""
    told = []
    for name in ORDER:
        device, called = _ratios(gpu, name)
        if device:
            means = [geometric_mean(list(ratios.values())) for ratios in (device, called)]
            told.append(
                f"{len(device)} workloads of the {name} suite: kernels {means[0]:.2f} times as fast in geometric mean, "
                f"calls {means[1]:.2f}"
            )
    return "; ".join(told)


def _ratios(gpu: Results, suite: str) -> tuple[dict[str, float], dict[str, float]]:
    rows = [row for row in gpu.rows if row.family in SUITES[suite]]
    device = {row.workload: row.device_speedup for row in rows if row.device_speedup is not None}
    return device, {row.workload: row.speedup for row in rows if row.speedup is not None}


def where(gpu: Results, kernels: Mapping[str, Any]) -> str:
    """On which device, how, and what the latency-evaluator's predictions are worth there."""
    about, of_kernels = gpu.about, kernels["about"]
    rows = [row for row in kernels["rows"] if row["predicted"]]
    predicted, measured = [r["predicted"] for r in rows], [r["nanoseconds"] * 1e-9 for r in rows]
    correlation = spearmanr(predicted, measured).statistic
    error = statistics.median(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True))
    workloads = len({row["workload"] for row in rows})
    return (
        f"**On an {about['gpu']}** (driver {about['driver']}, Python {about['python']}, jax "
        f"{about['packages']['jax']}, {about['date'][:10]}; `bench/gpu.sh`, `bench/results/gpu.json`, commit "
        f"{about['commit'][:7]}; its steps, the device's constants and autotune: `bench/results/gpu_session.json`). "
        "*Device*: the seconds for which kernels ran, by CUPTI, arguments often still in level-2 cache. *Calls*: "
        "medians with their spread, both in turn, many calls in one program; copies that this program makes of results "
        "are in both, and a ratio of times with a spread of a tenth and more says little. The models and optimizers "
        f"were not reached. Each kernel of {workloads} workloads launched by itself under Nsight Compute, caches "
        "empty, beside what the latency-evaluator had predicted for it: "
        f"{len(rows)} kernels, rank correlation {correlation:.3f}, median error {error:.0%} "
        f"(`python -m bench.gpu.counters`, `bench/results/gpu_kernels.json`, commit {of_kernels['commit'][:7]}; "
        "barriers and the memory's rate had been measured on the same GPU, with other programs)."
    )


def tables(gpu: Results) -> Iterable[str]:
    """Suites, then workloads."""
    suites = []
    for name in ORDER:
        device, called = _ratios(gpu, name)
        if not device:
            continue
        cells = [name, str(len(device))]
        for ratios in (device, called):
            worst, best = (f"{ratios[w]:.2f} {w}" for w in (f(ratios, key=ratios.__getitem__) for f in (min, max)))
            cells += [f"{geometric_mean(list(ratios.values())):.2f}", worst, best]
        suites.append(cells)
    heads = [f"{of}: {what}" for of in ("device", "calls") for what in HEAD]
    yield markdown(("suite", "workloads", *heads), suites, right=(1, 2, 5))
    lines = []
    for row in gpu.rows:
        sides = row.jit, row.stitched
        if row.speedup is None or row.device_speedup is None:
            continue
        own = [format_seconds(side.device or 0.0) for side in sides]
        launches = [f"{side.launches:,}" for side in sides]
        times = [seconds(side) for side in sides]
        lines.append((row.label, *own, f"{row.device_speedup:.2f}", *times, f"{row.speedup:.2f}", *launches))
    header = ("workload, float32", "device: `jax.jit`", "stitched", "speed-up", "call: `jax.jit`", "stitched")
    yield markdown((*header, "speed-up", "XLA's launches", "stitched"), lines, right=range(1, 9))
