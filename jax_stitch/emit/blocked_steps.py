"""Sums of so many steps, in loops in teams, that each block of steps is summed up by itself first, for accuracy."""

from __future__ import annotations

from collections.abc import Mapping

from jax_stitch.emit.blocked_sums import is_blocked, join_depth
from jax_stitch.emit.reducers import Reducer
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Op, Ref, Value
from jax_stitch.kernel.literals import literal

PRODUCT_BLOCK = 256
"""Steps of a block of a product: so many that the loads and stores of the blocks' sums cost little."""


class BlockedSteps:
    """The sums that steps go through: each whole, those of blocks, of blocks of blocks, until none takes many steps."""

    def __init__(self, count: int, block: int, sums: Mapping[Ref, Reducer | None]):
        """Take ``count`` steps of one thread, which go through ``sums``: a product has no reducer."""
        self._block, self._depth = block, join_depth(count, block)
        blocked = {cell: r for cell, r in sums.items() if r is None or is_blocked(r)}
        self._sums = blocked if self._depth else {}

    def target(self, whole: Ref) -> Ref:
        """Return the sum that a step goes to."""
        return self._block_of(whole, 0) if whole in self._sums else whole

    def declarations(self) -> list[st.Sum]:
        sums: list[st.Sum] = []
        for whole, r in self._sums.items():
            for k in range(self._depth):
                cell = self._block_of(whole, k)
                sums.append(st.Sum(cell.name, r.name if r else "", cell.dtype, _neutral(whole, r), of_block=True))
        return sums

    def joins(self) -> st.Joins | None:
        """Return what is done after each block, after each block of blocks, and so on."""
        if not self._sums:
            return None
        bodies = (tuple(s for sum_ in self._sums.items() for s in self._join(*sum_, k)) for k in range(self._depth))
        return st.Joins(self._block, tuple(map(st.JoinStep, bodies)))

    def _block_of(self, whole: Ref, depth: int) -> Ref:
        return Ref(f"{whole.name}_of_run{depth or ''}", whole.dtype)

    def _join(self, whole: Ref, r: Reducer | None, depth: int) -> st.Body:
        block = self._block_of(whole, depth)
        total = self._block_of(whole, depth + 1) if depth + 1 < self._depth else whole
        joined: Value = Op("add", whole.dtype, (total, block)) if r is None else r.combined(total, block)
        return st.Assign(total, joined), st.Assign(block, _neutral(whole, r))


def _neutral(whole: Ref, r: Reducer | None) -> Value:
    if r is None:
        return literal(0, whole.dtype)
    assert r.identity is not None
    return r.identity
