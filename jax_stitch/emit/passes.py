"""The loops of a pass over a row's places, with what is done at each."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.kernel import statements
from jax_stitch.kernel.statements import Joins, JoinStep, Pass
from jax_stitch.schedule.model import LoopStage, Part
from jax_stitch.schedule.runs import Stretch, stretches


def stretches_of(part: Part, stage: LoopStage) -> list[Stretch | None]:
    """The stretches that a pass is cut into; one of None where it is in one piece."""
    return list(stretches(stage.cuts, part.periods.get(stage.size, stage.size))) if stage.cuts else [None]


def make_pass(
    part: Part,
    size: int,
    scopes: Sequence[Scope],
    cuts: Sequence[int] = (),
    unrolled: bool = False,
    joins: Sequence[JoinStep] = (),
) -> Pass:
    """A pass over ``size`` places, with the statements of each stretch's scope.

    ``joins`` come after each block of turns, then of blocks, and so on, for each thread; ``unrolled`` where values are
    kept in registers.
    """
    period = part.periods.get(size, size)
    row = tuple(line for scope in scopes for line in scope.lines[PER_ROW])
    bounds = stretches(cuts, period)
    made = [statements.Stretch(*b, tuple(s.lines[PER_PLACE])) for s, b in zip(scopes, bounds, strict=True)]
    first = scopes[0]
    return Pass(
        size,
        period,
        row,
        tuple(made),
        first.vector,
        unrolled,
        ahead=tuple(dict.fromkeys(first.ahead)),
        joins=Joins(part.sum_block, tuple(joins)) if joins else None,
    )
