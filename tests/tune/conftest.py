"""A library of the test's own, beside the compiled kernels that all tests share; and times made up, where they are not
what is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jax_stitch.backend.compile import host
from jax_stitch.jit.library import Measured, database
from jax_stitch.jit.tune import race
from jax_stitch.jit.tune.race import Race
from tests.fusion.forced import LIGHT_FLAGS

Ratios = Callable[[Race], list[float]]


class Clock:
    """Says how long programs take in place of running them; counts the races."""

    def __init__(self) -> None:
        self.races: list[Race] = []
        self.units = [0.5, 0.5, 0.5]
        """Times of the candidates of each unit in order, as parts of XLA's; the last for all that follow."""
        self.whole = 0.5
        self.others = [0.9] * 9
        """Of the plans of other planners."""

    def measure(self, run: Race) -> dict[str, Measured]:
        self.races.append(run)
        ratios = [self.whole, *self.others] if run.seconds > 2 else self.units + self.units[-1:] * len(run.keys)
        found = {run.keys[0]: Measured(1.0, 0.0, 9)}
        return found | {k: Measured(r, float(r < 1), 9) for k, r in zip(run.keys[1:], ratios, strict=False)}


@pytest.fixture(autouse=True)
def own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "library" / "times.sqlite"
    monkeypatch.setattr(database, "path", lambda: path)
    monkeypatch.setattr(database, "_warned", set())
    monkeypatch.setenv("JAX_STITCH_STRICT", "1")  # A failure is no reason to run as jax.jit here.
    return path


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races of a few rounds: for what is so whoever wins, or wins by far."""
    monkeypatch.setattr(host, "FLAGS", LIGHT_FLAGS)
    monkeypatch.setattr(race, "_ROUNDS", 3)
    monkeypatch.setattr(race, "_ATTEMPTS", 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    monkeypatch.setattr(host, "FLAGS", LIGHT_FLAGS)
    found = Clock()
    monkeypatch.setattr(race, "measure", found.measure)
    yield found
