"""The cases on eight host devices."""

from __future__ import annotations

import functools

import pytest

from tests.devices8 import runner

MODULES = tuple(
    f"tests.devices8.{name}"
    for name in ("explicit", "manual", "names", "plans", "sharded", "training", "training_long")
)

run = functools.cache(runner.outcomes)


@pytest.mark.parametrize(
    ("module", "case", "together"),
    [
        pytest.param(module, case, together, id=f"{module.rpartition('.')[2]}-{case}", marks=marks)
        for module in MODULES
        # The others take one process for all: JAX starts once, and what is alike is compiled once.
        for together, marks in (
            ((module,), [pytest.mark.xdist_group(module), pytest.mark.slow]),
            (MODULES, [pytest.mark.xdist_group("devices8")]),
        )
        for case in runner.names(module, is_slow=together != MODULES)
    ],
)
def test_case(module: str, case: str, together: tuple[str, ...]) -> None:
    failure = run(together != MODULES, *together)[f"{module}.{case}"]
    assert failure is None, failure
