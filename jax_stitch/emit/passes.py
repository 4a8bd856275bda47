"""The loops of a pass over a row's places, with what is done at each."""

from __future__ import annotations

from collections.abc import Sequence

from jax_stitch.emit.body import PER_PLACE, PER_ROW, Scope
from jax_stitch.ir.indices.variables import PLACE, RUN
from jax_stitch.kernel import statements
from jax_stitch.kernel.statements import Axis, Joins, JoinStep, Pass
from jax_stitch.kernel.threads import How
from jax_stitch.schedule.model import LoopPass, Part
from jax_stitch.schedule.runs import Stretch, stretches


def stretches_of(part: Part, row_pass: LoopPass) -> list[Stretch | None]:
    """Return the stretches of a pass between its breaks; one of None where it has none."""
    return (
        list(stretches(row_pass.breaks, part.periods.get(row_pass.size, row_pass.size))) if row_pass.breaks else [None]
    )


def place_axes(places: int, runs: int = 1, how: How = How.LANE) -> tuple[Axis, Axis]:
    """Return the variables of some runs, and of the places of a run."""
    return Axis(RUN, runs), Axis(PLACE, places, how)


def make_pass(
    part: Part,
    size: int,
    scopes: Sequence[Scope],
    breaks: Sequence[int] = (),
    unrolled: bool = False,
    joins: Sequence[JoinStep] = (),
) -> Pass:
    """Return a pass over ``size`` places, with the statements of each stretch's scope.

    ``joins`` come after each block of trips, then of blocks, and so on, for each thread; ``unrolled`` where values are
    cached in registers.
    """
    period = part.periods.get(size, size)
    row = tuple(line for scope in scopes for line in scope.lines[PER_ROW])
    bounds = stretches(breaks, period)
    made = [statements.Stretch(*b, tuple(s.lines[PER_PLACE])) for s, b in zip(scopes, bounds, strict=True)]
    first = scopes[0]
    return Pass(
        *place_axes(period, size // max(1, period), How.UNROLLED if unrolled else How.LANE),
        row,
        tuple(made),
        first.vector,
        ahead=tuple(dict.fromkeys(first.ahead)),
        joins=Joins(part.sum_block, tuple(joins)) if joins else None,
    )
