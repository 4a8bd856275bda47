"""Pipelines run their passes in order, verify what these make, and record it."""

from __future__ import annotations

import pytest

from jax_stitch.ir.passes import Pass, PassError, Pipeline, recording
from jax_stitch.ir.passes.framework import VERIFY_VARIABLE


def _positive(value: int) -> None:
    if value < 0:
        raise ValueError(f"{value} is below zero")


def doubling(*more: Pass[int, bool]) -> Pipeline[int, bool]:
    return Pipeline(
        "numbers",
        Pass("double", lambda value, _: 2 * value),
        Pass("add-one", lambda value, _: value + 1, needs=lambda adds: adds),
        *more,
        verify=_positive,
    )


def test_passes_run_in_order_and_only_where_they_are_needed() -> None:
    """Catches passes in another order, and a need that is not asked."""
    assert doubling().run(3, True) == 7
    assert doubling().run(3, False) == 6
    assert [p.name for p in doubling().passes_in(False)] == ["double"]


def test_every_recorder_sees_each_pass_with_its_values() -> None:
    """Catches a step lost where recordings are nested, and one recorded after its recording."""
    with recording() as outer:
        with recording() as inner:
            doubling().run(3, True)
        doubling().run(1, False)
    doubling().run(5, True)
    assert [(s.pipeline, s.name, s.before, s.after) for s in inner] == [
        ("numbers", "double", 3, 6),
        ("numbers", "add-one", 6, 7),
    ]
    assert outer[:2] == inner and [s.after for s in outer[2:]] == [2]
    assert all(s.seconds >= 0 for s in outer)


def test_a_malformed_value_names_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a pass that breaks a graph, with a later one blamed for it; and verification that nobody asked for."""
    broken = doubling(Pass("negate", lambda value, _: -value), Pass("halve", lambda value, _: value // 2))
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    with pytest.raises(PassError, match="pass negate of numbers made a malformed value: -7 is below zero"):
        broken.run(3, True)
    monkeypatch.delenv(VERIFY_VARIABLE)
    assert broken.run(3, True) == -4


def test_a_pass_returns_the_very_value_that_it_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches passes that copy each kernel: all of them were verified after each pass."""
    copying = Pipeline("lists", Pass[list[int], None]("copy", lambda value, _: list(value)))
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    with pytest.raises(PassError, match="pass copy of lists copied a value that it does not change"):
        copying.run([1], None)


def test_a_pass_is_found_by_its_name() -> None:
    assert doubling()["add-one"].apply(1, True) == 2
