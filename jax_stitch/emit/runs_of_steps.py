"""Sums of so many steps in loops in teams that each run of these is summed up by itself first, for accuracy."""

from __future__ import annotations

from collections.abc import Mapping

from jax_stitch.emit.blocked_sums import is_blocked, levels_of_runs
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Op, Ref, Value
from jax_stitch.kernel.literals import literal

PRODUCT_RUN = 256
"""Steps of a run of a product: as many as keep what runs cost in loads and stores of sums small."""


class RunsOfSteps:
    """The sums that steps go through: each whole, and those of runs, of runs of runs, until none takes many steps."""

    def __init__(self, count: int, run: int, sums: Mapping[Ref, Reducer | None]):
        """``count`` steps of one thread go through ``sums``: a product has no reducer."""
        self._run, self._levels = run, levels_of_runs(count, run)
        blocked = {cell: r for cell, r in sums.items() if r is None or is_blocked(r)}
        self._sums = blocked if self._levels else {}

    def target(self, whole: Ref) -> Ref:
        """The sum that a step goes to."""
        return self._of_runs(whole, 0) if whole in self._sums else whole

    def declarations(self) -> list[st.Sum]:
        found: list[st.Sum] = []
        for whole, r in self._sums.items():
            for k in range(self._levels):
                cell = self._of_runs(whole, k)
                found.append(st.Sum(cell.name, r.name if r else "", cell.dtype, _neutral(whole, r), of_runs=True))
        return found

    def joins(self) -> st.Joins | None:
        """What is done after each run, after each run of runs, ..."""
        if not self._sums:
            return None
        levels = (tuple(s for sum_ in self._sums.items() for s in self._join(*sum_, k)) for k in range(self._levels))
        return st.Joins(self._run, tuple(map(st.JoinStep, levels)))

    def _of_runs(self, whole: Ref, level: int) -> Ref:
        return Ref(f"{whole.name}_of_run{level or ''}", whole.dtype)

    def _join(self, whole: Ref, r: Reducer | None, level: int) -> st.Body:
        run = self._of_runs(whole, level)
        total = self._of_runs(whole, level + 1) if level + 1 < self._levels else whole
        joined: Value = Op("add", whole.dtype, (total, run)) if r is None else r.combined(total, run)
        return st.Assign(total, joined), st.Assign(run, _neutral(whole, r))


def _neutral(whole: Ref, r: Reducer | None) -> Value:
    if r is None:
        return literal(0, whole.dtype)
    assert r.identity is not None
    return r.identity
