"""Rows of dumps from several processes, as one file and a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.__main__ import main


def _file(path: Path, commit: str, *rows: tuple[str, bool]) -> Path:
    found: list[dict[str, Any]] = [
        {"workload": w, "device": "cpu", "form": "after", "same": same, "function": [1], "dump": [2], "note": ""}
        for w, same in rows
    ]
    path.write_text(json.dumps({"about": {"commit": commit}, "rows": found}))
    return path


def test_the_later_file_s_rows_stay(tmp_path: Path) -> None:
    """Catches two verdicts on one workload, and rows under the commit of another run."""
    first = _file(tmp_path / "a.json", "one", ("softmax", True), ("lamb", False))
    second = _file(tmp_path / "b.json", "two", ("lamb", True), ("rnn", False))
    assert main(["hlo", "--join", str(first), str(second), "--json", str(tmp_path / "hlo.json")]) == 0
    rows = json.loads((tmp_path / "hlo.json").read_text())["rows"]
    assert [(r["workload"], r["commit"], r["same"]) for r in rows] == [
        ("lamb", "two", True),
        ("rnn", "two", False),
        ("softmax", "one", True),
    ]
    told = (tmp_path / "hlo.md").read_text()
    assert "3 workloads, 3 comparisons, 2 the same." in told and "| rnn | cpu | after | 1 | 2 |" in told
    assert "| lamb" not in told
