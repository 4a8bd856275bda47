"""The cases on eight host devices."""

from __future__ import annotations

import functools

import pytest

from tests.devices8 import runner

MODULES = ("explicit", "manual", "plans", "sharded", "training")
LONG = ("training_long",)

run = functools.cache(runner.outcomes)


@pytest.mark.parametrize(
    ("module", "case"),
    [
        pytest.param(
            name, case, marks=[pytest.mark.xdist_group(f"devices8-{name}"), *([pytest.mark.slow] * (name in LONG))]
        )
        for name in MODULES + LONG
        for case in runner.names(f"tests.devices8.{name}")
    ],
)
def test_case(module: str, case: str) -> None:
    failure = run(f"tests.devices8.{module}")[case]
    assert failure is None, failure
