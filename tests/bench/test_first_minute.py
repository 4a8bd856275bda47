"""The benchmark of the first minute: its programs, its bars, and that it goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import pytest

from bench.__main__ import main
from bench.first_minute import command, growth, programs


def row(**changes: Any) -> dict[str, Any]:
    """A program that keeps every bar, but for ``changes``."""
    jit = {"first": 1.0, "first_work": 1.0, "calls": {"slow": 0.01}}
    auto = {
        "first": 1.2,
        "first_work": 1.5,
        "work": 1.0,
        "meanwhile": {"slow": 0.02},
        "after": 1.5,
        "state": "stitched",
    }
    found: dict[str, Any] = {"program": "any", "size": [2], "failed": None, "jit": jit, "auto": auto | {"settled": 2.0}}
    found |= {"jit_again": {"first": 0.5}, "again": {"first": 0.54}, "planned": {"xla": 0.8, "planning": 0.4}}
    for place, value in changes.items():
        kind, _, name = place.partition("__")
        found[kind][name] = value
    return found


@pytest.mark.parametrize(
    ("changes", "bars"),
    [
        ({}, []),
        ({"auto__first": 1.31}, ["first"]),
        ({"again__first": 0.56}, ["again"]),
        ({"auto__work": 3.6}, ["work"]),
        ({"planned__planning": 1.3}, ["planning"]),
        ({"auto__meanwhile": {"slow": 0.07}}, ["meanwhile"]),
        ({"auto__after": 0.96}, ["after"]),
    ],
)
def test_each_bar(changes: dict[str, Any], bars: list[str]) -> None:
    assert command.broken(row(**changes)) == bars


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"auto__work": 1.4}, 0), ({"auto__work": 1.6}, 1), ({"planned__planning": 0.41}, 1)],
)
def test_means_have_bars_of_their_own(changes: dict[str, Any], status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = row(**changes)
    assert not command.broken(found)
    monkeypatch.setattr(command, "measured", lambda name, size: found)
    assert main(["first_minute", "--only", "softmax_last"]) == status


def test_a_program_that_takes_nothing_does_not_make_up_for_another() -> None:
    nothing, much = row(auto__first_work=0.2, auto__work=0.3), row(auto__work=3.5)
    assert command.mean_work([nothing, much]) == pytest.approx(2.0)  # 1 and 4


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(command, "about", lambda device: {"commit": "c0ffee"})

    def measured(name: str, size: list[int]) -> dict[str, Any]:
        asked.append(name)
        return row() | {"program": name, "size": size}

    monkeypatch.setattr(command, "measured", measured)
    file = tmp_path / "found.json"
    names = ["softmax_last", "optax_adamw", "flax_cnn"]
    for only in (names[:1], names, names):
        assert main(["first_minute", "--only", *only, "--json", str(file)]) == 0
    sizes = {r["program"]: r["size"] for r in json.loads(file.read_text())["rows"]}
    assert sorted(asked) == sorted(sizes) == sorted(names)


class Workers:
    """Stands for the processes: what each kind finds, one after the other, and what a program finds that keeps every
    bar where nothing is told.
    """

    def __init__(self, found: dict[str, list[dict[str, Any]]]):
        self.asked: list[str] = []
        self._found = {kind: iter(each) for kind, each in found.items()}

    def __call__(self, kind: str, name: str, size: list[int], folder: Path) -> dict[str, Any]:
        self.asked.append(kind)
        return row()[kind] | next(self._found.get(kind, iter(())), {})


def calls(count: int, slow: int, median: float = 0.1) -> dict[str, float]:
    return {"count": count, "median": median, "slow": slow / count if count else 0.0}


def firsts(*seconds: float) -> list[dict[str, Any]]:
    return [{"first": each} for each in seconds]


@pytest.mark.parametrize(
    ("jit", "again", "medians"),
    [
        ([0.9, 0.5, 0.2], [0.3, 0.4, 0.1], (0.5, 0.3)),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], [0.3, 0.3, 0.1, 0.1, 0.1, 0.1], (0.1, 0.1)),
        ([0.1] * 9, [0.11] * 9, (0.1, 0.11)),
    ],
)
def test_later_processes_are_run_in_turn_and_the_median_counts(
    jit: list[float], again: list[float], medians: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: one slow start of a process taken for what all take, and what is always slower taken for one."""
    workers = Workers({"jit_again": firsts(*jit), "again": firsts(*again)})
    monkeypatch.setattr(command, "_worked", workers)
    found = command.measured("any", [])
    assert workers.asked == ["jit", "auto", "planned", *["jit_again", "again"] * len(jit)]
    assert (found["jit_again"]["first"], found["again"]["first"]) == medians
    assert found["later_runs"] == len(jit)


@pytest.mark.parametrize(
    ("auto", "slow"),
    [
        ([(19, 0)], 0.0),
        ([(19, 1), (81, 0)], 0.01),
        ([(120, 9)] * 5, 0.075),
        ([(10, 1), (0, 0), (90, 4)], 0.05),
    ],
)
def test_slow_calls_of_one_process_are_counted_among_those_of_more(
    auto: list[tuple[int, int]], slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: one call of 19 that the machine delays taken for a twentieth; what is slow again and again forgiven."""
    workers = Workers(
        {"jit": [{"calls": calls(10, 0)}] * len(auto), "auto": [{"meanwhile": calls(*each)} for each in auto]}
    )
    monkeypatch.setattr(command, "_worked", workers)
    found = command.measured("any", [])
    assert found["auto"]["meanwhile"]["slow"] == pytest.approx(slow)
    assert found["auto"]["meanwhile"]["count"] == sum(count for count, _ in auto)
    assert found["jit"]["calls"]["count"] == 10 * len(auto)
    assert found["runs"] == len(auto) == workers.asked.count("auto")
    assert command.broken(found) == ["meanwhile"] * (slow > 0.05)


@pytest.mark.parametrize(("auto", "median"), [([1.2], 1.2), ([1.9, 1.2, 1.1], 1.2), ([1.9, 1.1, 1.8, 1.2, 1.9], 1.8)])
def test_a_slow_first_result_is_one_of_several(
    auto: list[float], median: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [each | {"meanwhile": calls(50, 0)} for each in firsts(*auto)]
    workers = Workers({"jit": [{"calls": calls(10, 0)}] * len(auto), "auto": found})
    monkeypatch.setattr(command, "_worked", workers)
    measured = command.measured("any", [])
    assert measured["auto"]["first"] == median and measured["runs"] == len(auto)
    assert command.broken(measured) == ["first"] * (median > 1.3)


THERE = [p.name for p in programs.PROGRAMS if p.name not in programs.missing()]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "optax_adamw")) for n in THERE])
def test_the_programs_can_be_traced(name: str) -> None:
    fun, args = programs.made(name)
    assert jax.tree_util.tree_leaves(jax.eval_shape(fun, *args))


@pytest.mark.parametrize(("times", "status"), [((1.0, 2.0, 4.0, 8.0), 0), ((1.0, 2.0, 4.0, 13.0), 1)])
def test_what_takes_more_and_more_is_told(
    times: tuple[float, ...], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = dict(zip(growth.KINDS[1].sizes, times, strict=True))

    def worked(kind: str, name: str, size: list[int], folder: Path) -> dict[str, Any]:
        count = int(name.split()[0])
        return {"xla": 1.0, "planning": sizes.get(count, float(count)), "operations": count}

    monkeypatch.setattr(command, "_worked", worked)
    file = tmp_path / "growth.json"
    assert main(["first_minute", "--growth", "--json", str(file)]) == status
    assert [row["size"] for row in json.loads(file.read_text())["rows"]] == [n for k in growth.KINDS for n in k.sizes]


@pytest.mark.parametrize("kind", growth.KINDS, ids=lambda kind: kind.name)
def test_programs_grow_with_their_size(kind: growth.Kind) -> None:
    """Catches: a program whose like parts JAX or XLA makes one, so that nothing grows."""
    counts = []
    for size in (4, 8, 16):
        fun, args = growth.made(growth.name_of(kind, size))
        counts.append(sum(" = " in line for line in jax.jit(fun).lower(*args).compile().as_text().splitlines()))
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.2)
