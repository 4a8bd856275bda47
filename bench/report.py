"""Tables and plots of result files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import papers
from bench.files import Results, read_all
from bench.rows import Row
from bench.run import ATTACHED
from bench.suites import SCALING
from bench.tables import bytes_ratio, copy_share, markdown, seconds, share, size_text, summary
from jax_stitch.util.formatting import format_bytes, format_seconds
from jax_stitch.util.timing import geometric_mean

HOW_MEASURED = (
    "Times are medians over rounds in which `jax.jit` and `stitch_jit` take turns in one process, ± the interquartile "
    "range; calls of less than 1 ms are made by a loop inside one program. Compile times are from the function to the "
    "program: cold with empty caches, warm in another process with the kernels on disk (XLA's own cache is off). "
    "Launches and bytes are counted on the programs that ran; bandwidth is the least possible bytes over the time, as "
    "a share of a copy's. Errors are the largest against float64, relative to the largest magnitude of the leaf."
)
HOW_PLANNED = (
    "Counted on what XLA's own compiler makes of both programs for the device. A loop counts each trip, and once where "
    "its length is not known. A workload left with no memory-intensive launch at all counts in no mean. The least are "
    "the memory-intensive launches that XLA's library calls leave no way to save, one wherever something is between "
    "a call and another that needs it; a loop that is stitched with its products inside needs fewer."
)


def report(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Writes ``report.md`` and its plots into ``folder``; returns what was written.

    Raises ``ValueError`` or ``OSError`` for a file that holds no results.
    """
    from bench import plots

    found = read_all(paths)
    measured = [results for results in found if results.about["device"] in ATTACHED]
    planned = [results for results in found if results.about["device"] not in ATTACHED]
    folder.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(measured, planned, folder)
    sections = ["# Benchmarks", *map(_measured, measured), *map(_planned, planned)]
    if drawn:
        sections.append("## Plots\n\n" + "\n\n".join(f"![{p.stem}]({p.name})" for p in drawn if p.suffix == ".svg"))
    page = folder / "report.md"
    page.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return [page, *drawn]


def machine(about: dict[str, Any]) -> str:
    """One paragraph: what ran where."""
    versions = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    parts = [
        f"{about['cpu']}, {about['cores']} cores, {about['system']}",
        f"{about['gpu']}, driver {about['driver']}" if about.get("gpu") else "",
        f"Python {about['python']}, {versions}",
        about.get("compiler") or "",
        f"a copy moves {format_bytes(about['copy_bytes_per_second'])}/s" if about.get("copy_bytes_per_second") else "",
        f"commit {about['commit']}, {about['date']}",
    ]
    return "; ".join(part for part in parts if part) + "."


def _measured(results: Results) -> str:
    about, rows = results.about, results.rows
    bandwidth = about.get("copy_bytes_per_second")
    grown = [row for row in rows if row.size in SCALING.get(row.workload, ())]
    sections = [
        f"## Measured: {about['device']}",
        machine(about),
        f"**{summary(rows)}.**",
        HOW_MEASURED,
        _times([row for row in rows if row not in grown], bandwidth),
    ]
    if grown:
        sections += ["### Scaling", _times(grown, bandwidth)]
    sections += [f"### {title}\n\n{text}" for title, text in _remarks(rows)]
    return "\n\n".join(sections)


def _times(rows: Sequence[Row], bandwidth: float | None) -> str:
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    header = [
        *("workload", "jax.jit", "stitched", "speed-up", *peers, "launches", "bytes / bound", "of a copy"),
        *("peak memory", "largest error", "compile cold", "warm", "verdict"),
    ]
    graphs = any(row.jit.without_graphs is not None for row in rows)
    if graphs:
        header.insert(4, "without graphs")
    table = [_time_cells(row, peers, graphs, bandwidth) for row in rows]
    return markdown(header, table, right=range(1, len(header) - 1))


def _time_cells(row: Row, peers: Sequence[str], graphs: bool, bandwidth: float | None) -> list[str]:
    if row.status == "failed":
        count = 11 + len(peers) + graphs
        return [row.label, *[""] * count, f"failed while {row.stage}: {row.reason[:120]}"]
    j, s = row.jit, row.stitched

    def both(a: Any, b: Any) -> str:
        return f"{a} → {b}"

    without = "-"
    if j.without_graphs is not None and s.without_graphs is not None:
        without = both(format_seconds(j.without_graphs.median), format_seconds(s.without_graphs.median))
    errors = both(*("-" if side.error is None else f"{side.error:.1g}" for side in (j, s)))
    verdict = {"ok": "agrees", "plain": "not stitched", "wrong": "WRONG"}[row.status]
    at = f" at [{' x '.join(map(str, row.checked_size))}]" if row.checked_size else ""
    return [
        *(row.label, seconds(j), seconds(s), "-" if row.speedup is None else f"{row.speedup:.2f}"),
        *([without] if graphs else []),
        *(format_seconds(row.peers[name].median) if name in row.peers else "-" for name in peers),
        "-" if j.launches is None else both(f"{j.launches:,}", f"{s.launches:,}"),
        both(bytes_ratio(j, row), bytes_ratio(s, row)),
        both(*(share(copy_share(side, row, bandwidth)) for side in (j, s))),
        *(both(size_text(j.peak_bytes), size_text(s.peak_bytes)), errors),
        *(
            both(*("-" if t is None else format_seconds(t) for t in pair))
            for pair in ((j.cold, s.cold), (j.warm, s.warm))
        ),
        verdict + at,
    ]


def _remarks(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What went wrong, and what the rows note."""
    wrong = [f"- {row.label}: {row.reason}" for row in rows if row.status == "wrong"]
    notes = [f"- {row.label}: {note}" for row in rows for note in row.notes]
    return [(title, "\n".join(lines)) for title, lines in (("Wrong", wrong), ("Notes", notes)) if lines]


def _planned(results: Results) -> str:
    rows = [row for row in results.rows if row.status != "failed"]
    failed = [
        f"- {row.label}: failed while {row.stage}: {row.reason}" for row in results.rows if row.status == "failed"
    ]
    counted = {row.label: m for row in rows if (m := row.memory_launches) is not None}
    ratios = [s / x for x, s in counted.values() if x and s]
    more = [label for label, (x, s) in counted.items() if s > x]
    of_papers = [m for row in rows if row.workload in papers.FIGURES and (m := row.memory_launches) and min(m)]
    goal = f"Goal: at most {papers.GOAL:.2f} (the 2021 paper: {papers.MEAN_2021:.2f}), none over 1."
    sections = [
        f"## Planned: {results.about['device']}, described, not attached",
        machine(results.about),
        f"Memory-intensive launches (all but library calls) over XLA's, in geometric mean: "
        f"**{_mean(ratios)}** of {len(ratios)} workloads, **{_mean([s / x for x, s in of_papers])}** of the "
        f"{len(of_papers)} with a figure in the papers. {goal} More launches than XLA: {', '.join(more) or 'none'}.",
        HOW_PLANNED,
        _plans(rows),
        "### Where stitching stops\n\n" + _stops(rows),
    ]
    if failed:
        sections.append("### Failed\n\n" + "\n".join(failed))
    return "\n\n".join(sections)


def _mean(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.2f}" if ratios else "-"


def _plans(rows: Sequence[Row]) -> str:
    header = (
        "workload",
        "XLA",
        "stitched",
        "ratio",
        "least",
        "library calls",
        "bytes / bound: XLA",
        "stitched",
        "the papers",
    )
    table = []
    for row in rows:
        if (counts := row.memory_launches) is None:
            continue
        xla, stitched = counts
        figures = papers.FIGURES.get(row.workload, ())
        told = "; ".join(
            f"{f.ratio:.2f}" + (f" ({f.counts[0]:,} → {f.counts[1]:,})" if f.counts else "") + f", {f.source}"
            for f in figures
        )
        libraries = f"{row.jit.library_launches or 0:,} → {row.stitched.library_launches or 0:,}"
        table.append(
            (
                *(row.label, f"{xla:,}", f"{stitched:,}", f"{stitched / xla:.2f}" if xla else "-"),
                *("-" if row.floor is None else f"{row.floor:,}", libraries),
                *(bytes_ratio(row.jit, row), bytes_ratio(row.stitched, row), told),
            )
        )
    return markdown(header, table, right=range(1, 8))


def _stops(rows: Sequence[Row], most: int = 4) -> str:
    table = [
        (row.label, "; ".join(f"{count:,} x {op}: {why}" for count, op, why in row.stops[:most]))
        for row in rows
        if row.stops
    ]
    return markdown(("workload", "operations left to XLA, the most frequent reasons"), table)
