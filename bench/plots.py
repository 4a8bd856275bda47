"""Plots of results, each as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from bench.files import Results
from bench.rows import Row
from bench.suites import SCALING

XLA, STITCHED = "#8a8f98", "#d9480f"
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "bench",  # the same drawing gives the same file
    "svg.fonttype": "none",
}
Draw = Callable[[Any, Sequence[Row], Results], None]


def draw(measured: Sequence[Results], planned: Sequence[Results], folder: Path) -> list[Path]:
    """Every plot that there is data for; returns the files."""
    written: list[Path] = []
    kinds: tuple[tuple[str, Draw, Callable[[Row], bool], Sequence[Results]], ...] = (
        ("speedup", _speedup, lambda row: row.speedup is not None and not is_scaling(row), measured),
        ("roofline", _roofline, lambda row: bool(row.jit.time and row.bound_bytes and row.jit.bytes), measured),
        ("predicted", _predicted, _is_predicted, measured),
        ("scaling", _scaling, is_scaling, measured),
        ("launches", _launches, lambda row: row.memory_launches is not None, (*measured, *planned)),
    )
    with plt.rc_context(STYLE):
        for name, plot, usable, sources in kinds:
            for results in sources:
                rows = [row for row in results.rows if row.status != "failed" and usable(row)]
                if rows:
                    written += _save(f"{name}_{results.name}", plot, rows, results, folder)
    return written


def scatter(rows: Sequence[Any], title: str, path: Path) -> list[Path]:
    """Predicted against measured times of kernels (``bench.evaluators.Row``), as ``path`` with both endings."""
    colours = {"launch": "#8a8f98", "memory": "#1c7ed6", "instructions": "#d9480f"}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
        for bound, colour in colours.items():
            of_kind = [row for row in rows if row.bound == bound]
            x, y = [row.predicted * 1e6 for row in of_kind], [row.measured * 1e6 for row in of_kind]
            axes.scatter(x, y, color=colour, s=12, label=f"most of it {bound}")
        ends = [time * 1e6 for row in rows for time in (row.predicted, row.measured)]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="black", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="predicted, us", ylabel="measured, us")
        axes.set_title(title, fontsize=8)
        axes.legend()
        return _written(figure, path)


def crossings(
    series: Mapping[int, Mapping[str, Sequence[tuple[int, float]]]],
    at: Mapping[tuple[int, str], int | None],
    path: Path,
) -> list[Path]:
    """How many times faster loops are, by steps and name, over the batch; rings where ``at`` says they stay ahead."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, len(series), figsize=(1 + 3 * len(series), 3.4), sharey=True, squeeze=False, layout="constrained"
        )
        names = list(dict.fromkeys(name for of_steps in series.values() for name in of_steps))
        for axes, (steps, of_steps) in zip(panels[0], sorted(series.items()), strict=True):
            for name, points in of_steps.items():
                speedups = dict(sorted(points))
                colour = f"C{names.index(name)}"
                axes.plot(speedups.keys(), speedups.values(), marker="o", markersize=3, color=colour, label=name)
                first = at.get((steps, name))
                if first is not None:
                    axes.plot(first, speedups[first], "o", markersize=9, fillstyle="none", color=colour)
            axes.axhline(1, color="black", linewidth=0.8)
            axes.set(xscale="log", yscale="log", xlabel="rows", title=f"{steps:,} steps")
        panels[0][0].set_ylabel("times faster than jax.jit")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return _written(figure, path)


def is_scaling(row: Row) -> bool:
    """Whether a row is one of a series of sizes."""
    return row.size in SCALING.get(row.workload, ())


def _save(name: str, plot: Draw, rows: Sequence[Row], results: Results, folder: Path) -> list[Path]:
    bars = plot in (_speedup, _launches)
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.16 * len(rows)) if bars else (6, 4.2), layout="constrained")
    plot(axes, rows, results)
    return _written(figure, folder / name)


def _written(figure: Any, path: Path) -> list[Path]:
    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png")]
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=120)
    plt.close(figure)
    return paths


def _speedup(axes: Any, rows: Sequence[Row], results: Results) -> None:
    ordered = sorted(rows, key=lambda row: row.speedup or 0)
    values = [row.speedup or 0 for row in ordered]
    axes.barh([row.label for row in ordered], values, color=[STITCHED if v >= 1 else XLA for v in values])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.set_xlabel(f"times faster than jax.jit, {results.about['device']}")


def _launches(axes: Any, rows: Sequence[Row], results: Results) -> None:
    ordered = sorted(rows, key=lambda row: (row.memory_launches or (0, 0))[0])
    places = range(len(ordered))
    for side, colour, label in ((0, XLA, "XLA"), (1, STITCHED, "stitched")):
        counts = [max((row.memory_launches or (0, 0))[side], 0.5) for row in ordered]
        axes.scatter(counts, places, color=colour, label=label, s=14, zorder=3)
    axes.hlines(
        places,
        [max((row.memory_launches or (0, 0))[1], 0.5) for row in ordered],
        [max((row.memory_launches or (0, 0))[0], 0.5) for row in ordered],
        color="#d0d4da",
    )
    axes.set_yticks(places, [row.label for row in ordered])
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.set_xlabel(f"memory-intensive launches per call, {results.about['device']}")
    axes.legend(loc="lower right")


def _roofline(axes: Any, rows: Sequence[Row], results: Results) -> None:
    """Bytes that must be moved against bytes per second: the roof is a copy."""
    for name, colour in (("jit", XLA), ("stitched", STITCHED)):
        sides = [getattr(row, name) for row in rows]
        x = [row.bound_bytes for row in rows]
        y = [(row.bound_bytes or 0) / side.time.median / 1e9 for row, side in zip(rows, sides, strict=True)]
        axes.scatter(x, y, color=colour, s=14, label={"jit": "jax.jit"}.get(name, name))
    if (roof := results.about.get("copy_bytes_per_second")) is not None:
        axes.axhline(roof / 1e9, color="black", linewidth=0.8)
        axes.annotate("a copy", (1, roof / 1e9), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    axes.set(xscale="log", yscale="log", xlabel="bytes of arguments and results", ylabel="GB/s of those bytes")
    axes.legend()


def _is_predicted(row: Row) -> bool:
    both = (row.jit, row.stitched)
    return all(side.time and side.predicted and not side.library_launches for side in both)


def _predicted(axes: Any, rows: Sequence[Row], results: Results) -> None:
    """For programs without library calls: what bytes and launches should take, and what was measured."""
    ends = []
    for name, colour in (("jit", XLA), ("stitched", STITCHED)):
        sides = [getattr(row, name) for row in rows]
        x, y = [side.predicted * 1e3 for side in sides], [side.time.median * 1e3 for side in sides]
        axes.scatter(x, y, color=colour, s=14, label={"jit": "jax.jit"}.get(name, name))
        ends += x + y
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="predicted from bytes and launches, ms", ylabel="measured, ms")
    axes.legend()


def _scaling(axes: Any, rows: Sequence[Row], results: Results) -> None:
    for name in dict.fromkeys(row.workload for row in rows):
        series = sorted((row for row in rows if row.workload == name and row.speedup), key=lambda row: row.size)
        base = [row.bound_bytes for row in series]
        axes.plot(base, [row.speedup for row in series], marker="o", markersize=3, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="bytes of arguments and results", ylabel="times faster than jax.jit")
    axes.legend()
