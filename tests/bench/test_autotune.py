"""``python -m bench autotune``: what counts as slower, and the command from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import autotune
from bench.__main__ import main
from bench.autotune import row_of
from jax_stitch.jit.tune import race
from tests.bench.here import Here


@pytest.mark.parametrize(
    ("tuned", "again", "is_slower"),
    [
        ([1.5] * 8, [1.0] * 8, True),
        ([0.5] * 8, [1.0] * 8, False),
        ([1.01] * 8, [1.0] * 8, False),  # always, but by a hair
        ([1.5] * 4 + [0.9] * 4, [1.0] * 8, False),  # as often faster
        ([1.5] * 8, [2.0] * 8, False),  # jax.jit itself is no steadier
        ([1.5] * 6 + [0.9] * 2, [1.0] * 8, True),
    ],
)
def test_what_is_slower_beyond_noise(tuned: list[float], again: list[float], is_slower: bool) -> None:
    row = row_of("name", (1,), [{"plain": [1.0] * 8, "tuned": tuned, "again": again}], 1, 0.0)
    assert row.is_slower is is_slower


def test_the_ratio_is_of_rounds_and_not_of_medians() -> None:
    """A machine that is twice as slow in some rounds slows both."""
    plain = [1.0, 2.0, 4.0, 8.0, 16.0]
    row = row_of("name", (1,), [{"plain": plain, "tuned": [t * 0.9 for t in plain], "again": plain[::-1]}], 1, 0.0)
    assert row.ratio == pytest.approx(0.9) and not row.is_slower


def test_a_process_whose_memory_lies_badly_decides_nothing_by_itself() -> None:
    good = {"plain": [1.0] * 8, "tuned": [0.9] * 8, "again": [1.0] * 8}
    bad = {**good, "tuned": [1.5] * 8}
    row = row_of("name", (1,), [bad, good, good], 1, 0.0)
    assert row.processes == (1.5, 0.9, 0.9) and not row.is_slower
    assert row_of("name", (1,), [bad, bad, bad], 1, 0.0).is_slower


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "Worker", Here)
    monkeypatch.setattr(race, "_ROUNDS", 3)
    monkeypatch.setattr(race, "_ATTEMPTS", 1)
    path = tmp_path / "found.json"
    wanted = ["--only", "softmax_first", "--small", "--seconds", "0.2", "--processes", "2"]
    status = main(["autotune", *wanted, "--json", str(path)])
    out = capsys.readouterr().out
    found = json.loads(path.read_text(encoding="utf-8"))
    (row,) = found["rows"]
    assert not found["failed"] and row["workload"] == "softmax_first"
    assert 0 <= row["kernels"] <= 4  # At most one for each of XLA's fusions; the race decides how many.
    assert len(row["processes"]) == 2
    assert status == int(row["is_slower"]) and "slower beyond noise: " in out


def test_a_workload_of_another_suite_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["autotune", "--suite", "loops", "--only", "softmax_first"])
    assert end.value.code == 2 and "try --suite all" in capsys.readouterr().err
