"""What ``pytest --quick`` leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import shares
from tests.shares import Known


def test_every_function_is_run_and_dear_cases_where_there_is_no_other() -> None:
    """A function whose cases are all left out would be found by nobody."""
    cases = [*(f"a.py::cheap[{k}]" for k in range(50)), *(f"a.py::half[{k}]@group" for k in range(9)), "b.py::alone"]
    dear = {"b.py::alone", "a.py::half[0]"}
    run = shares.chosen(cases, Known({"a.py::cheap": shares.SHARE / 100, "a.py::half": shares.SHARE / 4}, dear))
    assert {c for c in cases if "cheap" in c} <= run and "b.py::alone" in run
    assert sorted(c for c in run if "half" in c) == [f"a.py::half[{k}]@group" for k in (1, 3, 5, 7)]


def test_a_first_case_that_pays_for_all_decides_nothing_about_the_others() -> None:
    lines = [json.dumps([seconds, f"a.py::f[{k}]@g"]) for k, seconds in enumerate([90.0, 0.1, 0.1, 0.1])]
    assert shares.measured(lines) == Known({"a.py::f": 0.1}, ["a.py::f[0]"])


def test_dear_cases_that_were_not_run_stay_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick run leaves them out: put into the file after it, the next one took them."""
    monkeypatch.setattr(shares, "FILE", tmp_path / "shares.json")
    every, quick = tmp_path / "every", tmp_path / "quick"
    every.write_text("".join(f'[{seconds}, "a.py::f[{k}]"]\n' for k, seconds in enumerate([9.0, 8.0, 0.1])))
    quick.write_text('[0.2, "a.py::f[1]"]\n[0.1, "a.py::f[2]"]\n')
    shares.main([str(every)])
    shares.main([str(quick)])
    assert shares.known_costs() == Known({"a.py::f": 0.15}, frozenset({"a.py::f[0]"}))
