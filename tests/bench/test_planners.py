"""``python -m bench planners``: a row for each planner of each workload, and how planning time grows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import planners
from bench.__main__ import main
from bench.planners import LAYERS, WORKLOADS, Growth, growth_of, of_layers, training_graph
from jax_stitch import devices
from jax_stitch.frontend.capture import capture
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.store.location import FOLDER_VARIABLE
from tests.fusion.layered import random_graph


def test_rows_and_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a graph that is planned soon; the layers' own are planned in the slow test."""
    monkeypatch.setattr(planners, "training_graph", lambda layers, unlike: random_graph(Random(layers + unlike), 30))
    path = tmp_path / "planners.json"
    assert main(["planners", "--only", "standardise", "--layers", "1", "--json", str(path)]) == 0
    assert "per operation" in capsys.readouterr().out
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["workload"], row["planner"]): row for row in found["rows"]}
    assert set(rows) == {("standardise", planner) for planner in PlannerName}
    beam, none = rows["standardise", "beam"], rows["standardise", "none"]
    assert all(beam["seconds"] <= row["seconds"] * 1.001 for row in rows.values())
    assert beam["launches"] < none["launches"] and beam["bytes"] <= none["bytes"]
    assert [(g["layers"], g["unlike"]) for g in found["growth"]] == [(1, False), (1, True)]


def test_xla_is_asked_while_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: microseconds as the time of its compilation, since its text was there already; or milliseconds, since it
    was in the cache.
    """
    asked: list[tuple[str, list[str]]] = []

    class Watched:
        def __init__(self, *args: Any) -> None:
            self.captured = capture(*args)

        def __getattr__(self, name: str) -> Any:
            asked.append((name, os.listdir(os.environ[FOLDER_VARIABLE])))
            return getattr(self.captured, name)

    monkeypatch.setattr(planners, "capture", Watched)
    next(planners.of_workload("standardise", devices.get("cpu")))
    assert asked[0] == ("default_text", [])


def test_layers_have_operations_of_their_own() -> None:
    assert 300 < len(training_graph(1, True)) < 500


def test_at_least_twelve_workloads_are_compared() -> None:
    assert len(set(WORKLOADS)) >= 12


def test_growth_is_the_worst_between_two_sizes() -> None:
    """A bump in the middle counts, a fall before it does not; the order of measuring is nothing."""
    found = [Growth(n, 1000 * n, 1e-3 * 1000 * n * per, 0) for n, per in ((1, 3.0), (20, 1.5), (2, 1.0), (5, 2.0))]
    assert growth_of(found) == pytest.approx(2.0)
    assert growth_of(found[:2]) == 1.0


def test_an_unknown_device_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["planners", "--device", "h300"])
    assert end.value.code == 2 and "Did you mean 'h200'" in capsys.readouterr().err


@pytest.mark.slow
def test_planning_time_grows_with_the_graph_and_no_more() -> None:
    """Ten thousand operations in ten seconds of one core; from any size between one and twenty thousand to any larger
    one each takes at most 1.5 times as long.
    """
    for unlike in (False, True):
        found = [of_layers(count, devices.get("h200"), unlike) for count in LAYERS]
        assert found[0].operations < 1_250 and found[-1].operations > 20_000
        assert next(g for g in found if g.operations > 10_000).planning < 10
        assert growth_of(found) < 1.5
