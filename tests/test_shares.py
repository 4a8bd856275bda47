"""What ``pytest --quick`` leaves out."""

from __future__ import annotations

import json

from tests import shares


def test_every_function_is_run_and_dear_ones_less() -> None:
    """A function whose cases are all left out would be found by nobody."""
    cases = [*(f"a.py::cheap[{k}]" for k in range(50)), *(f"a.py::dear[{k}]" for k in range(9)), "b.py::alone"]
    run = shares.chosen(cases, {"a.py::cheap": shares.SHARE / 100, "a.py::dear": shares.SHARE / 3, "b.py::alone": 99.0})
    assert {c for c in cases if "cheap" in c} <= run and "b.py::alone" in run
    assert sorted(c for c in run if "dear" in c) == ["a.py::dear[0]", "a.py::dear[3]", "a.py::dear[6]"]


def test_a_first_case_that_pays_for_all_counts_like_the_others() -> None:
    lines = [json.dumps([seconds, f"a.py::f[{k}]"]) for k, seconds in enumerate([90.0, 1.0, 1.0, 1.0])]
    assert shares.means(lines) == {"a.py::f": 1.5}
    assert shares.means([json.dumps([4.0, "a.py::g"])]) == {"a.py::g": 4.0}
