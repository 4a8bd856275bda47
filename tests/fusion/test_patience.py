"""What better plans may take: only what is spent on them counts, and goes first to the pieces that miss most."""

from __future__ import annotations

import time
from random import Random

from jax_stitch.fusion.outcome import Begun, Outcome
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.pieces import _improve, _Unlike
from tests.fusion.layered import random_graph

OUTCOME = Outcome(random_graph(Random(0), 4), (), (), {}, 0.0, {})


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_only_what_is_spent_on_better_plans_counts() -> None:
    patience = Patience(0.02)
    work(0.03)
    assert patience.left == 0.02
    with patience.spent():
        with patience.spent():
            work(0.01)
        assert patience.has(0.001) and not patience.has(0.0101)
        work(0.02)
        assert patience.is_over
    assert patience.is_over and not patience.is_endless


def test_there_is_no_end_to_what_is_endless() -> None:
    with ENDLESS.spent():
        work(0.001)
    assert ENDLESS.is_endless and ENDLESS.has(1e9) and not ENDLESS.is_over


def improved(patience: Patience) -> list[str]:
    """The pieces that are looked at, in order."""
    asked: list[str] = []

    def piece(name: str, missing: float, count: int) -> _Unlike:
        def improve(patience: Patience, with_care: bool) -> Outcome:
            asked.append(name)
            return OUTCOME

        made = _Unlike(Begun(OUTCOME, 10.0, missing, improve), True)
        made.count = count
        return made

    _improve([piece("little", 0.1, 1), piece("some", 2.0, 1), piece("thrice", 1.0, 3), piece("done", 0.0, 1)], patience)
    return asked


def test_first_what_misses_most() -> None:
    """What all others miss together must be worth it, unless the best plan is asked for."""
    assert improved(Patience(10.0)) == ["thrice", "some"]
    assert improved(ENDLESS) == ["thrice", "some", "little", "done"]
    assert improved(Patience(0.0)) == []
