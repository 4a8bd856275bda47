"""``python -m bench evaluators``: figures, plot, and the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import evaluators
from bench.__main__ import INCOMPLETE, main
from bench.evaluators import Row, of_case, verdict
from bench.suites import cases
from bench.workloads import ALL
from jax_stitch import devices


def rows(predicted: list[float], measured: list[float]) -> list[Row]:
    return [Row("w", (1,), "k", 1, p, m, "memory") for p, m in zip(predicted, measured, strict=True)]


def test_the_bars_are_for_order_and_size() -> None:
    times = [float(k) for k in range(1, 61)]
    assert verdict(rows(times, times)).agrees and verdict(rows(times, times)).enough
    assert not verdict(rows(times[:59], times[:59])).enough
    assert not verdict(rows([2 * t for t in times], times)).agrees  # in order, but twice too long
    mixed = verdict(rows([1.0] * 30 + [2.0] * 30, [1.0, 2.0] * 30))
    assert mixed.correlation == pytest.approx(0, abs=1e-9) and not mixed.agrees
    assert verdict(rows([1.3, 3.0, 2.0], [1.0, 2.0, 3.0])).error == pytest.approx(1 / 3)


@pytest.mark.slow
def test_a_run_writes_figures_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = ["softmax_last", "discounted_rewards", "logsumexp"]
    status = main(
        ["evaluators", "--sizes", "small", "--only", *only, "--seconds", "0.01", "--out", str(tmp_path)],
    )
    assert status == INCOMPLETE, "three workloads have too few kernels to show anything"
    assert "rank correlation" in capsys.readouterr().out
    found = json.loads((tmp_path / "evaluators_cpu.json").read_text(encoding="utf-8"))
    assert {row["workload"] for row in found["rows"]} == set(only)
    assert all(0 < row["predicted"] < 0.1 and 0 < row["measured"] < 0.1 for row in found["rows"])
    assert "constants" in found["about"]
    for ending in ("svg", "png"):
        assert (tmp_path / f"evaluators_cpu.{ending}").stat().st_size > 1000


def test_without_a_library_for_plots_there_are_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a rented GPU it is not there: a run ended in an error after all its work."""
    made = iter(rows([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]))
    monkeypatch.setattr(evaluators, "of_case", lambda *_: [next(made)])
    monkeypatch.setattr(evaluators, "find_spec", lambda _: None)
    chosen = cases("all", only=["softmax_last", "cart_pole", "logsumexp"], small=True)
    found = evaluators.run(list(chosen), "cpu", 0.01, 60.0, tmp_path, Console())
    assert found is not None and found.kernels == 3
    assert "no plot" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["evaluators_cpu.json"]


def test_loops_of_unknown_length_are_not_judged() -> None:
    """How long they run is in their data; and a workload has a kernel besides only where that is one."""
    cpu = devices.get("cpu")
    (case,) = cases("all", only=["adaptive_step"], small=True)
    assert case.workload is ALL["adaptive_step"] and not list(of_case(case, cpu, 0.01))


def test_wrong_names_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["evaluators", "--suite", "micro", "--only", "cart_pole"])
    assert end.value.code == 2 and "cart_pole" in capsys.readouterr().err
