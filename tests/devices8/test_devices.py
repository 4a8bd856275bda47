"""The cases on eight host devices."""

from __future__ import annotations

import functools

import pytest

from tests.devices8 import runner

MODULES = ("explicit", "manual", "plans", "sharded", "training", "training_long")

run = functools.cache(runner.outcomes)


@pytest.mark.parametrize(
    ("module", "case"),
    [
        pytest.param(name, case, marks=[pytest.mark.xdist_group(f"devices8-{name}"), *([pytest.mark.slow] * is_slow)])
        for name in MODULES
        for is_slow in (False, True)
        for case in runner.names(f"tests.devices8.{name}", is_slow)
    ],
)
def test_case(request: pytest.FixtureRequest, module: str, case: str) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    failure = run(f"tests.devices8.{module}", is_slow)[case]
    assert failure is None, failure
