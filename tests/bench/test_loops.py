"""``python -m bench loops``: figures, plots, and the verdict, also of a run that is cut off."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import loops
from bench.__main__ import main
from bench.loops import Point, crossing, verdict

SMALL = ["loops", "--only", "cart-pole", "--seconds", "0.01"]


def point(batch: int, speedup: float, stitched_loops: int = 1) -> Point:
    return Point("cart-pole", batch, 10, speedup, 1.0, 0.0, stitched_loops)


def test_the_bars_are_for_the_mean_and_for_each() -> None:
    assert verdict([point(1, 0.95), point(16, 2.0)]).reached
    assert not verdict([point(1, 0.94), point(16, 9.0)]).reached
    assert not verdict([point(1, 1.1), point(16, 1.1)]).reached
    left = verdict([point(1, 0.5, stitched_loops=0), point(16, 4.0)])
    assert left.reached and left.mean == pytest.approx(2) and left.worst == pytest.approx(4)


def test_crossing_is_where_it_stays_ahead() -> None:
    assert crossing([point(1, 2.0), point(16, 0.9), point(256, 1.5), point(4096, 3.0)], "cart-pole", 10) == 256
    assert crossing([point(1, 2.0), point(16, 0.9)], "cart-pole", 10) is None


@pytest.mark.slow
def test_a_run_writes_figures_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of points made up: one is measured below."""
    monkeypatch.setattr(loops, "measure", lambda name, batch, steps, seconds: replace(point(batch, 2.0), steps=steps))
    monkeypatch.setattr(loops, "compile_times", functools.partial(loops.compile_times, steps=(10,)))
    path = tmp_path / "loops.json"
    main([*SMALL, "--batches", "4", "256", "--steps", "10", "20", "--json", str(path)])
    printed = capsys.readouterr().out
    assert "geometric mean" in printed and "never slower from a batch of" in printed
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [(p["batch"], p["steps"]) for p in found["points"]] == [(4, 10), (4, 20), (256, 10), (256, 20)]
    assert all(p["speedup"] > 0 for p in found["points"]) and found["verdict"]["mean"] > 0
    assert len(found["compile"]) == 1
    for ending in ("svg", "png"):
        assert (tmp_path / f"loops.{ending}").stat().st_size > 1000


def test_a_run_that_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Points lost that had been measured."""
    measured = loops.measure

    def cut_off(name: str, batch: int, steps: int, seconds: float) -> Point:
        if batch > 4:
            raise KeyboardInterrupt
        return measured(name, batch, steps, seconds)

    monkeypatch.setattr(loops, "measure", cut_off)
    path = tmp_path / "loops.json"
    assert main([*SMALL, "--batches", "4", "8", "--steps", "10", "--json", str(path)]) == 130
    assert [p["batch"] for p in json.loads(path.read_text(encoding="utf-8"))["points"]] == [4]
    assert (tmp_path / "loops.svg").exists() and "geometric mean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error"), [(["--steps", "0"], "at least 1"), (["--most-work", "0"], "no size has at most 0")]
)
def test_wrong_use(options: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["loops", *options])
    assert error in capsys.readouterr().err
