"""``python -m bench threads``: the same workload on one core and on all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import threads
from bench.__main__ import main
from bench.threads import Row, Times, confined, table
from tests.bench.here import Here

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are chosen on Linux alone")


def test_a_row_has_both_on_one_core_and_on_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[Here] = []
    monkeypatch.setattr(threads, "Worker", lambda environment: workers.append(Here(environment)) or workers[-1])
    path = tmp_path / "threads.json"
    before = os.sched_getaffinity(0)
    assert main(["threads", "--only", "softmax_last", "--small", "--seconds", "0.1", "--json", str(path)]) == 0
    assert os.sched_getaffinity(0) == before
    assert {frozenset(w.cores) for w in workers if w.cores} == {frozenset({min(before)}), frozenset(before)}
    (row,) = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert all(row[cores][side] > 0 for cores in ("one", "all") for side in ("jit", "stitched"))
    assert f"softmax_last [{' x '.join(map(str, row['size']))}]" in capsys.readouterr().out


def test_gains_and_means() -> None:
    rows = [
        Row("a", (4,), Times(0.008, 0.004), Times(0.004, 0.001)),
        Row("b", (4,), Times(0.008, 0.004), Times(0.008, 0.004)),
    ]
    assert (rows[0].jit_gain, rows[0].stitched_gain, rows[0].all.speedup) == (2.0, 4.0, 4.0)
    last = table(rows, 2).splitlines()[-1]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == [
        *("geometric mean", "", "", "1.41", "", "", "2.00", "2.00", "2.83")
    ]


def test_cores_are_given_back_after_an_error() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), confined(sorted(before)[:1]):
        assert len(os.sched_getaffinity(0)) == 1
        raise KeyError
    assert os.sched_getaffinity(0) == before
