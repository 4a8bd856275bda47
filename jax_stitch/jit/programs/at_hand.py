"""A program that is loaded before the call that needs it is lowered.

Where an earlier process has found the stitched program faster, the first call of this one is known, by its name, to
need that program. To capture the function once more, only to find the same name, takes as long as JAX takes to lower
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from jax_stitch.frontend.capture.physical import from_physical, physical_aval, to_physical
from jax_stitch.jit.programs.on_disk import load
from jax_stitch.jit.programs.program import RebuiltProgram, types_of
from jax_stitch.jit.programs.verdicts import Verdict


def loaded(verdict: Verdict) -> list[RebuiltProgram]:
    """Return the programs of what is better stitched; none where one of them is gone."""
    held = [load(name) for name in verdict.programs] if verdict.stitched else []
    return [] if None in held else [program for program in held if program is not None]


@contextmanager
def at_hand(programs: Sequence[RebuiltProgram]) -> Iterator[None]:
    """Hold these at hand while a call is lowered that needs them: of several it is not known which operation
    needs which.
    """
    token = _at_hand.set(list(programs) if len(programs) == 1 else [])
    try:
        yield
    finally:
        _at_hand.reset(token)


def taken(
    name: str, place: str, arguments: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]
) -> Callable[..., list[Any]] | None:
    """Return the program at hand of a function of that name, defined at that place, as one of values of these types;
    None where there is none, or another: the function may have constants or Python calls, which a capture finds. It is
    given to one operation only.
    """
    held = _at_hand.get()
    program = held.pop() if held else None
    given, returned = list(map(physical_aval, arguments)), tuple(map(physical_aval, results))
    if program is None or program.callbacks or program.constants:
        return None
    if (program.name, program.types) != (name, types_of(given, returned)):
        return None

    def run(*values: Any) -> list[Any]:
        arrays = [to_physical(value, aval) for value, aval in zip(values, arguments, strict=True)]
        given_back = program.for_function(place)(arrays, returned)
        return [from_physical(array, aval) for array, aval in zip(given_back, results, strict=True)]

    return run


_at_hand: ContextVar[list[RebuiltProgram] | None] = ContextVar("jax_stitch_program_at_hand", default=None)
