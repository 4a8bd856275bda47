"""``python -m bench.figures``: ``docs/measurements.md`` and README's table, written from the committed results alone.

Each line of the page names the file that it comes from, the command that wrote it and the commit that ran. A test
compares both with what this prints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from bench import gpu_figures
from bench.about import ROOT
from bench.files import Results, read
from bench.first_minute.command import FIRST_TIMES, mean_planning, mean_work, planning_ratio, work_ratio
from bench.first_minute.growth import grown
from bench.papers import FIGURES, MEAN_2021
from bench.rows import Row
from bench.small import predicted
from bench.suites import SUITES
from bench.tables import markdown
from jax_stitch.util.formatting import format_seconds
from jax_stitch.util.timing import geometric_mean

RESULTS, PAGE, README = ROOT / "bench" / "results", ROOT / "docs" / "measurements.md", ROOT / "README.md"
BEGIN, END = "<!-- measurements: python -m bench.figures -->", "<!-- end of measurements -->"

SHOWN = (
    *("layer_norm_and_gradient", "group_norm_and_gradient", "residual_dropout_layer_norm", "softmax_long_row"),
    *(
        "cross_entropy_gradient",
        "batch_norm_gradient",
        "cumsum",
        "adamw",
        "adamw_clipped",
        "cart_pole",
        "cart_pole_rng",
    ),
    *("lorenz", "lstm", "lstm_gradient", "word2vec", "perceptron", "speech_training", "transformer_training"),
    *("bert_training", "bert_inference", "dien_training", "training_step"),
)
"""Workloads with a row of their own."""

SHORT = (
    *("layer_norm_and_gradient", "group_norm_and_gradient", "softmax_long_row", "adamw_clipped", "cart_pole_rng"),
    *("lorenz", "lstm", "bert_training", "training_step", "perceptron"),
)
"""Those of them that README shows: the best, usual ones, and the worst."""

File = Mapping[str, Any]


def block(folder: Path = RESULTS) -> str:
    """Return the page's measurements, in Markdown: its tables, and a line for each other file of results that there is.

    Raises ``OSError`` where a table's file is missing.
    """
    cpu, h200, a100 = (read(folder / f"{device}.json") for device in ("cpu", "h200", "a100"))
    present = {name: line for name, line in LINES.items() if (folder / f"{name}.json").exists()}
    lines = [f"- {line(_file(folder, name))}" for name, line in present.items()]
    tables = _suites(cpu, h200), _workloads(cpu, h200)
    gpu = read(folder / "gpu.json")
    on_gpu = gpu_figures.where(gpu, _file(folder, "gpu_kernels")), *gpu_figures.tables(gpu)
    return "\n\n".join([_where(cpu, h200), *tables, _papers(h200, a100), *on_gpu, "\n".join(lines)])


def short(folder: Path = RESULTS) -> str:
    """README's table."""
    cpu, h200, gpu = (read(folder / f"{name}.json") for name in ("cpu", "h200", "gpu"))
    about, timed = cpu.about, _speedups(cpu)
    where = (
        "**Measured**: times on a CPU, medians of both functions called in turn, the stitched one with "
        f'`mode="now"`, on {about["cores"]} cores of an {about["cpu"]} with jax {about["packages"]["jax"]}. Over all '
        f"{len(timed)} workloads the geometric mean of speed-ups is {geometric_mean(timed):.2f}; {_below(timed)} "
        f"below 1. **Measured on an {gpu.about['gpu']}** with jax {gpu.about['packages']['jax']}, "
        f"{gpu_figures.short(gpu)}. "
        "**Planned, not measured**: launches and bytes for an H200, counted on what XLA's own compiler makes of both "
        "programs."
    )
    return f"{where}\n\n{_workloads(cpu, h200, SHORT)}"


def _speedups(of: Results) -> list[float]:
    return [row.speedup for row in of.rows if row.speedup is not None]


def _below(speedups: Sequence[float]) -> str:
    count = sum(speedup < 1 for speedup in speedups)
    return {0: "none is", 1: "one is"}.get(count, f"{count} are")


def _where(cpu: Results, h200: Results) -> str:
    about = cpu.about
    versions = f"Python {about['python']}, jax {about['packages']['jax']}, {about['compiler']}"
    return (
        f"CPU: medians, both functions called in turn in one process, on {about['cores']} "
        "cores "
        f"of an {about['cpu']} (a shared virtual machine), {versions}, {about['date'][:10]} (`python -m bench run "
        "--suite "
        f"all --device cpu`, {_source('cpu', about)}; {_agreement(cpu.rows)}). H200: counted on what XLA's own "
        "compiler "
        "makes of both programs for a described H200, at the papers' sizes where they differ (`python -m bench run "
        f"--suite all --device h200`, {_source('h200', h200.about)}); a loop of unknown length counts as one trip. In "
        "brackets: workloads with launches of that kind left."
    )


def _agreement(rows: Sequence[Row]) -> str:
    agreeing = sum(row.status in ("ok", "plain") for row in rows)
    return f"{agreeing} of {len(rows)} workloads ran and agree with `jax.jit`"


def _suites(cpu: Results, h200: Results) -> str:
    header = ("suite", "workloads", "CPU: speed-up, geometric mean", "worst", "best")
    table = []
    for name, families in (*SUITES.items(), ("all", tuple(chain(*SUITES.values())))):
        timed = {row.workload: row.speedup for row in cpu.rows if row.family in families and row.speedup is not None}
        ratios = _launch_ratios(row for row in h200.rows if row.family in families)
        worst, best = (f"{timed[w]:.2f} {w}" for w in (f(timed, key=timed.__getitem__) for f in (min, max)))
        mean = geometric_mean(list(timed.values()))
        planned = f"{geometric_mean(ratios):.3f} ({len(ratios)})"
        table.append((name, str(len(timed)), f"{mean:.2f}", worst, best, planned))
    more = "H200, planned: launches that are not library calls, over XLA's"
    return markdown((*header, more), table, right=(1, 2, 5))


def _workloads(cpu: Results, h200: Results, shown: Sequence[str] = SHOWN) -> str:
    planned = {row.workload: row for row in h200.rows}
    table = []
    for row in (row for row in cpu.rows if row.workload in shown and row.speedup is not None):
        times = [format_seconds(side.time.median) for side in (row.jit, row.stitched) if side.time is not None]
        there = planned[row.workload]
        sides = [there.jit, there.stitched]
        launches = [f"{side.launches:,}" for side in sides]
        bound = there.bound_bytes
        ratios = " to ".join(f"{side.bytes / bound:.2f}" for side in sides if side.bytes and bound)
        table.append((row.label, *times, f"{row.speedup:.2f}", *launches, ratios))
    header = ("workload, float32", "CPU: `jax.jit`", "stitched", "speed-up")
    more = ("H200, planned: XLA's launches", "stitched", "bytes over the bound")
    return markdown((*header, *more), table, right=range(1, 7))


def _papers(h200: Results, a100: Results) -> str:
    found = [_launch_ratios(row for row in results.rows if row.workload in FIGURES) for results in (h200, a100)]
    means = [f"**{geometric_mean(ratios):.2f}**" for ratios in found]
    every = [m for results in (h200, a100) for row in results.rows if (m := row.memory_launches) is not None]
    more = sum(stitched > xla for xla, stitched in every)
    return (
        f"Launches that are not library calls, over XLA's, of the {len(found[0])} workloads that the papers have "
        "figures for: "
        f"{means[0]} in geometric mean for the H200 and {means[1]} for the A100 ({_source('a100', a100.about)}); the "
        "2021 "
        f"paper has {MEAN_2021}. {more or 'None'} of {len(every)} has more of them than XLA. All rows, with "
        "launches, bytes, memory, "
        "errors and compile times, and the plots: `bench/results/report/report.md`."
    )


def _launch_ratios(rows: Iterable[Row]) -> list[float]:
    counted = [m for row in rows if (m := row.memory_launches) is not None and min(m) > 0]
    return [stitched / xla for xla, stitched in counted]


_SMALL: Mapping[str, tuple[str, str, str]] = {
    "small": ("small programs", "", "small"),
    "inside": ("small programs", ", in the default mode as parts of another that `jax.jit` compiles", "inside"),
    "algebra": ("programs of small matrices and of complex numbers", "", "small --algebra --no-old"),
    "steps": ("loops that sort, add up, draw numbers or exchange elements,", "", "small --steps --no-old"),
    "layers": ("programs of products with vectors and small batches", "", "small --layers --no-old"),
}
"""The small programs of each file: their description, how they are called, and the command."""


def _small_programs(file: File, name: str) -> str:
    what, how, command = _SMALL[name]
    rows = [row for row in file["rows"] if row["failed"] is None]
    least = min(rows, key=lambda row: float(row["times_jit"]))
    by = f"`python -m bench {command}`, {_source(name, file['about'])}"
    return (
        f"{len(rows)} {what} on an {file['about']['cpu']}{how}: geometric mean "
        f"{geometric_mean([row['times_jit'] for row in rows]):.2f} times `jax.jit`, the least "
        f"{least['times_jit']:.2f} ({least['program']}) ({by})."
    )


def _threads(file: File) -> str:
    rows = file["rows"]
    gains = [geometric_mean([r["one"][kind] / r["all"][kind] for r in rows]) for kind in ("stitched", "jit")]
    ahead = [geometric_mean([r[cores]["jit"] / r[cores]["stitched"] for r in rows]) for cores in ("one", "all")]
    return (
        f"Micro suite, {file['about']['cores']} cores against one: stitched functions are {gains[0]:.2f} times as "
        "fast in "
        f"geometric mean, `jax.jit`'s {gains[1]:.2f}; stitched over `jax.jit` {ahead[0]:.2f} on one core, "
        f"{ahead[1]:.2f} on "
        f"all (`python -m bench threads --suite micro`, {_source('threads', file['about'])})."
    )


def _evaluators(file: File) -> str:
    rows = file["rows"]
    correlation = spearmanr([r["predicted"] for r in rows], [r["measured"] for r in rows]).statistic
    error = statistics.median(abs(r["predicted"] / r["measured"] - 1) for r in rows)
    return (
        f"The latency-evaluator against measured times of {len(rows)} kernels, one core: rank correlation "
        f"{correlation:.3f}, "
        f"median error {error:.0%} (`python -m bench evaluators`, constants of `python -m jax_stitch measure`, "
        f"{_source('evaluators_cpu', file['about'])})."
    )


def _overhead(file: File) -> str:
    ratios = [row["ratio"] for row in file["rows"]]
    when = {"settled": " in the default mode, once it is decided what runs,", "now": ' in `mode="now"`'}
    return (
        f"A call{when.get(file.get('state', 'now'), '')} costs {min(ratios):.2f} to {max(ratios):.2f} times one of "
        f"`jax.jit` for {len(ratios)} small functions "
        f"(`python -m bench.overhead`, {_source('cpu_overhead', file['about'])})."
    )


def _warm(file: File) -> str:
    start, imported = (row["ratio"] for row in file["rows"][:2])
    return (
        f"A start with filled caches, to the first result of the demo's training step, takes {start:.2f} times one of "
        f"`jax.jit`, and {imported:.2f} times from the import of `jit` on (`python -m bench.warm`, "
        f"{_source('cpu_warm', file['about'])})."
    )


def _loops(file: File) -> str:
    points, verdict = file["points"], file["verdict"]
    left = sum(not point["stitched_loops"] for point in points)
    sizes, steps = ([point[kind] for point in points] for kind in ("batch", "steps"))
    return (
        f"Loops over batches of {min(sizes):,} to {max(sizes):,} and {min(steps):,} to {max(steps):,} steps, "
        f"{len(points)} "
        f"points: geometric mean {verdict['mean']:.2f}, worst where the loop is stitched {verdict['worst']:.2f}; "
        f"{left} are "
        f"left to XLA and count as 1 (`python -m bench loops`, {_source('loops', file['about'])}; crossing points in "
        "`bench/results/loops.svg`)."
    )


def _first_call(file: File) -> str:
    rows = file["rows"]

    def slow(kind: str) -> str:
        return ", ".join(f"{row[kind]['slow']:.1%}" for row in rows)

    names, ready = ", ".join(row["name"] for row in rows), ", ".join(format_seconds(row["ready"]) for row in rows)
    ratios = ", ".join(f"{row['first_ratio']:.2f}" for row in rows)
    return (
        f'`mode="async"`, for {names}: the first result takes {ratios} times that of `jax.jit`. Until the stitched '
        f"program is there (after {ready}), {slow('meanwhile')} of the calls take more than twice the median of "
        f"`jax.jit`, of whose own {slow('plain')} do, and {slow('beside')} beside any other process that computes at "
        "the "
        f"lowest priority (`python -m bench.first_call`, {_source('first_call', file['about'])})."
    )


def _first_minute(file: File) -> str:
    rows = [row for row in file["rows"] if row["failed"] is None]
    first = sorted(row["auto"]["first"] / row["jit"]["first"] for row in rows)
    over = max(row["auto"]["first"] - FIRST_TIMES * row["jit"]["first"] for row in rows)
    work, libraries = mean_work(rows), [row for row in rows if not row["size"]]
    of_libraries = f", {mean_work(libraries):.1f} for those on public libraries" if libraries else ""
    states = [row["auto"]["state"] for row in rows]
    after = [row["auto"]["after"] for row in rows]
    later = sorted(row["again"]["first"] / row["jit_again"]["first"] for row in rows)
    return (
        f"The first minute in the default mode on an {file['about']['cpu']}, caches empty, {len(rows)} programs: the "
        "first result takes "
        f"{first[0]:.2f} to {first[-1]:.2f} times that of `jax.jit`, at most {over:.2f} s over {FIRST_TIMES} times; "
        f"{states.count('stitched')} programs are stitched then, {states.count('plain')} stay, and calls are "
        f"{geometric_mean(after):.2f} times as fast in geometric mean, at least {min(after):.2f}. The processor time "
        f"until nothing more goes on, less a second, is {work:.1f} times that of a first call of `jax.jit` in "
        f"geometric mean (less than it counts as one){of_libraries}, at most "
        f"{max(map(work_ratio, rows)):.1f} times. Planning alone takes {mean_planning(rows):.2f} times the processor "
        f"time of XLA's compilation in geometric mean, at most {max(map(planning_ratio, rows)):.1f} times. In later "
        f"processes, JAX's persistent cache on, the first result takes {geometric_mean(later):.2f} times that of "
        f"`jax.jit` in geometric mean, at most {later[-1]:.2f} times; "
        f"{sum(ratio > FIRST_TIMES for ratio in later)} programs take over {FIRST_TIMES} times "
        f"(`python -m bench first_minute`, {_source('first_minute', file['about'])})."
    )


def _growth(file: File) -> str:
    largest = {row["kind"]: row for row in file["rows"]}  # The last of a kind.
    kinds = [
        f"{kind} {format_seconds(largest[kind]['planning'])} of {largest[kind]['operations']:,} operations "
        f"(XLA's compilation {format_seconds(largest[kind]['xla'])}), at most {most:.2f} times as long for each as in "
        "a smaller one"
        for kind, most in grown(file["rows"]).items()
    ]
    return (
        f"Planning programs that grow, for an {file['about']['cpu']}, processor time: {'; '.join(kinds)} "
        f"(`python -m bench first_minute --growth`, {_source('first_minute_growth', file['about'])})."
    )


def _planners(file: File) -> str:
    rows = {(row["workload"], row["planner"]): row for row in file["rows"]}
    beam, small = rows["bert_training", "beam"], rows["bert_training, small", "beam"]
    growth = [g for g in file["growth"] if g["unlike"]]
    ten, first, largest = next(g for g in growth if g["operations"] >= 10_000), growth[0], growth[-1]
    grown = largest["per_operation"] / first["per_operation"]
    return (
        f"Planning for an H200, processor time: {format_seconds(ten['planning'])} for {ten['operations']:,} "
        "operations of "
        f"layers that all differ, {format_seconds(largest['planning'])} for {largest['operations']:,}, "
        f"which is {grown:.2f} times as long for each as in a graph of {first['operations']:,}. A BERT "
        "training step "
        f"of 12 layers has {beam['launches']} launches that are not library calls (XLA's own "
        f"{beam['xla_launches']:,}); of "
        f"2 layers {format_seconds(small['planning'] + small['generating'])} of planning and code generation beside "
        f"{format_seconds(small['compiling'])} of XLA's compilation (`python -m bench planners`, "
        f"{_source('planners', file['about'])})."
    )


def _autotune(file: File) -> str:
    rows = file["rows"]
    ratios = [row["plain"] / row["tuned"] for row in rows]
    slower = [row["workload"] for row in rows if row["is_slower"]]
    said = "none is slower than `jax.jit` beyond noise" if not slower else f"slower than `jax.jit`: {', '.join(slower)}"
    if file["failed"]:
        said += f"; not measured: {', '.join(file['failed'])}"
    return (
        f"With `autotune`, {len(rows)} workloads, three processes each: geometric mean "
        f"{geometric_mean(ratios):.2f}; {said} "
        f"(`python -m bench autotune --suite all`, {_source('autotune', file['about'])})."
    )


LINES: Mapping[str, Callable[[File], str]] = {
    **{name: partial(_small_programs, name=name) for name in ("small", "algebra", "steps", "layers", "inside")},
    "predicted": lambda file: predicted.sentence(file["rows"], _source("predicted", file["about"])),
    "threads": _threads,
    "evaluators_cpu": _evaluators,
    "cpu_overhead": _overhead,
    "cpu_warm": _warm,
    "loops": _loops,
    "first_call": _first_call,
    "first_minute": _first_minute,
    "first_minute_growth": _growth,
    "planners": _planners,
    "autotune": _autotune,
}


def _file(folder: Path, name: str) -> File:
    found: File = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _source(name: str, about: Mapping[str, Any]) -> str:
    """Return the file of some figures, with the version of JAX and the commit that they are of."""
    commit = about.get("commit")
    return f"`bench/results/{name}.json`, jax {about['packages']['jax']}" + (f", commit {commit[:7]}" if commit else "")


def written(page: str, figures: str) -> str:
    """The page's text with these measurements in place of its own. Raises ``ValueError`` where there is no place."""
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:before]}\n{figures}\n{page[after:]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes both; with ``--check`` says whether they are as they would be written, by the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where they say otherwise")
    options = parser.parse_args(argv)
    stale = 0
    for path, figures in ((PAGE, block()), (README, short())):
        text = path.read_text(encoding="utf-8")
        new = written(text, figures)
        stale += new != text
        if not options.check:
            path.write_text(new, encoding="utf-8")
    return int(bool(stale and options.check))


if __name__ == "__main__":
    sys.exit(main())
