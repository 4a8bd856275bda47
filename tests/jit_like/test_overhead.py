"""That a call of a cached function runs no Python of ours; what it costs is measured by ``bench.overhead``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import pytest

from bench.overhead import Case, cases, measure
from jax_stitch import stitch_jit
from tests.light import light
from tests.side_by_side import same

__all__ = ["light"]


def python_calls(call: Callable[[], Any]) -> list[str]:
    """The Python functions that run in a call, once everything is cached."""
    call(), call()
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_call_runs_the_python_that_jit_runs(case: Case) -> None:
    """A pytree of the user's own is flattened by its Python; anything more would be a wrapper around the call."""
    plain, stitched = case.make(jax.jit), case.make(stitch_jit)
    same(stitched(), plain())
    assert python_calls(stitched) == python_calls(plain)


def test_the_benchmark_measures() -> None:
    row = measure(cases()[0], rounds=3, calls=2)
    assert row.plain > 0 and row.stitched > 0 and row.ratio > 0 and row.noise > 0
