"""Result files, tables and plots, of made-up rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import papers
from bench.files import FORMAT, Results, read
from bench.report import report
from bench.rows import Row, Side, Time
from bench.suites import SCALING
from bench.tables import summary

ABOUT: dict[str, Any] = {
    "device": "cpu",
    "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc",
    "python": "3.11.0",
    "packages": {"jax": "0.10.2"},
    "compiler": "g++ 12",
    "system": "Linux x86_64",
    "cpu": "a CPU",
    "cores": 2,
    "copy_bytes_per_second": 1e10,
}


def timed(median: float, launches: int, libraries: int = 0) -> Side:
    time = Time(median, 0.25, (median, median), in_program=True)
    return Side(
        time, None, 2.0, 1.0, launches, libraries, bytes=4_000_000, predicted=median / 2, peak_bytes=5, error=1e-7
    )


GOOD = Row(
    *("layer_norm", "normalisation", (8, 4), "float32", "cpu", "ok"),
    jit=timed(0.004, 6, 1),
    stitched=timed(0.001, 2, 1),
    peers={"torch.compile": Time(0.002, 0.1)},
    bound_bytes=2_000_000,
    stops=((3, "dot", "a library GEMM"),),
)
SLOW = replace(GOOD, workload="cumsum", jit=timed(0.001, 1), stitched=timed(0.002, 1), notes=("a note",), peers={})
WRONG = replace(GOOD, workload="softmax_last", status="wrong", reason="result DISAGREES")
FAILED = Row("adamw", "optimizer", (1, 2), "float32", "cpu", "failed", "compiling", "ended by SIGABRT: out|of memory")
GROWN = [replace(GOOD, workload="adamw", size=size) for size in SCALING["adamw"]]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "here.json"
    Results(ABOUT, (GOOD, SLOW, WRONG, FAILED, *GROWN)).write(path)
    return path


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    def plan(workload: str, xla: int, stitched: int) -> Row:
        sides = {
            "jit": Side(launches=xla + 2, library_launches=2),
            "stitched": Side(launches=stitched, library_launches=0),
        }
        return Row(workload, "some", (3,), "float32", "h200", "ok", stops=GOOD.stops, bound_bytes=9, floor=7, **sides)

    path = tmp_path / "there.json"
    rows = plan("bert_training", 100, 25), plan("cumsum", 4, 4), plan("lamb", 1, 2), plan("logsumexp", 3, 0), FAILED
    Results(ABOUT | {"device": "h200"}, rows).write(path)
    return path


def test_rows_come_back_as_they_were_written(measured: Path) -> None:
    found = read(measured)
    assert found.rows == (GOOD, SLOW, WRONG, FAILED, *GROWN)
    assert found.about == ABOUT and found.name == "here"


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for text in ("{", "[]", '{"rows": []}', json.dumps({"format": FORMAT, "about": {}, "rows": [{"size": 3}]})):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"other\.json holds no results"):
            read(path)
    path.write_text(json.dumps({"format": FORMAT + 1, "about": {}, "rows": []}), encoding="utf-8")
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}"):
        read(path)


def test_what_a_newer_version_added_is_passed_over(measured: Path) -> None:
    values = json.loads(measured.read_text(encoding="utf-8"))
    values["rows"][0]["colour"] = values["rows"][0]["jit"]["colour"] = "red"
    measured.write_text(json.dumps(values), encoding="utf-8")
    assert read(measured).rows[0] == GOOD


def test_the_summary_counts_all_rows() -> None:
    text = summary((GOOD, SLOW, FAILED))
    assert "geometric mean 1.41x, best 4.00x (layer_norm), worst 0.50x (cumsum)" in text
    assert "memory-intensive launches 0.45 of XLA's" in text  # the mean of 1/5 and 1/1
    assert "1 failed" in text
    assert summary(()) == "nothing was measured"


def test_every_row_is_in_the_report_and_failures_say_why(measured: Path, planned: Path, tmp_path: Path) -> None:
    written = report([measured, planned], tmp_path / "report")
    text = written[0].read_text(encoding="utf-8")
    assert all(path.exists() and path.stat().st_size > 0 for path in written)
    for shown in (
        "| layer_norm [8 x 4] | 4 ms ± 25% | 1 ms ± 25% | 4.00 | 2 ms | 6 → 2 | 2.00 → 2.00 | 5% → 20% |",
        "failed while compiling: ended by SIGABRT: out\\|of memory",
        "| WRONG |",
        "- cumsum [8 x 4]: a note",
        "a copy moves 10 GB/s",
        "### Scaling",
        "| bert_training [3] | 100 | 25 | 0.25 | 7 | 2 → 0 |",
        "0.49 (200 → 98), Zheng et al. 2021",
        "**0.79** of 3 workloads, **0.25** of the 1 with a figure",  # 0.25 * 1 * 2, to the third root
        "More launches than XLA: lamb [3].",
        "3 x dot: a library GEMM",
    ):
        assert shown in text, shown
    names = {path.name for path in written}
    kinds = ("speedup_here", "roofline_here", "predicted_here", "scaling_here", "launches_here", "launches_there")
    assert {f"{kind}.{ending}" for kind in kinds for ending in ("png", "svg")} <= names
    assert all(f"]({kind}.svg)" in text for kind in kinds)


def test_figures_of_the_2021_paper_give_the_mean_that_it_states() -> None:
    """A mistyped count: section 7.3 says 38.0 % in average, from 27.8 %, of its seven workloads."""
    ratios = [figures[0].ratio for figures in papers.FIGURES.values() if figures[0].source == papers.OF_2021]
    assert len(ratios) == 7
    assert sum(ratios) / 7 == pytest.approx(papers.MEAN_2021, abs=0.002)
    assert min(ratios) == pytest.approx(0.278, abs=0.001)


def test_figures_of_the_2019_paper_give_the_mean_that_it_states() -> None:
    """Compared to XLA, from 1.18 to 10.38 times fewer kernels (section 6.2), 2.8 in average (section 1)."""
    fewer = [1 / f.ratio for figures in papers.FIGURES.values() for f in figures if f.source == papers.OF_2019]
    assert len(fewer) == 10
    assert min(fewer) == pytest.approx(1.18, abs=0.005) and max(fewer) == pytest.approx(10.38, abs=0.01)
    assert sum(fewer) / 10 == pytest.approx(2.8, abs=0.05)
