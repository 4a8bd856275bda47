"""The workloads' dumps are planned as the functions are, and compute the same. All of them: ``python -m bench hlo``."""

from __future__ import annotations

import pytest

from bench import hlo, suites
from bench.workloads import ALL

FAST = ("softmax_last", "logistic_map")


@pytest.mark.parametrize("name", FAST)
def test_dumps_are_planned_as_the_functions_are(name: str) -> None:
    """Catches a dump that XLA gets as another program, and fusions that count as kernels only in one of the two."""
    (case,) = suites.cases("all", only=[name], small=True)
    rows = [row for device in ("cpu", "h200") for row in hlo.planned(case, device)]
    assert len(rows) == 6 and all(row.same for row in rows), "\n".join(map(str, rows))


@pytest.mark.parametrize("name", FAST)
def test_dumps_compute_what_the_functions_do(name: str) -> None:
    (case,) = suites.cases("all", only=[name], small=True)
    rows = list(hlo.computed(case))
    assert len(rows) == 6 and all(row.same for row in rows), "\n".join(map(str, rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_workloads_compute_the_same(name: str) -> None:
    (case,) = suites.cases("all", only=[name], small=True)
    assert all(row.same for row in hlo.computed(case))
