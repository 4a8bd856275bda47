"""What JAX has compiled already: its HLO need not be asked of XLA a second time.

The first call of a function in ``mode="auto"`` runs what ``jax.jit`` compiles of it. What is planned beside is the same
program, traced once more, so that XLA would make the same of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Var

from jax_stitch.capture.hlo_text import full_text
from jax_stitch.capture.physical import physical_aval

Types = tuple[tuple[tuple[int, ...], str], ...]


_PER_SECOND = 700_000
"""Characters of HLO that XLA makes in a second of processor time, where it is quick."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program that JAX has compiled for one device."""

    text: str = field(repr=False)
    """Optimized HLO, as XLA's default options have it."""
    seconds: float
    """Of processor time that its first call took; 0 where that is not known."""
    parameters: Types
    results: Types

    @property
    def cost(self) -> float:
        """Seconds of processor time that XLA took for it, at least about."""
        return max(self.seconds, len(self.text) / _PER_SECOND)

    def fits(self, parameters: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]) -> bool:
        """Whether it takes and returns arrays of these types, in order. That of another part of the function does not:
        one without arguments that are unused, or results that need no computation."""
        return (self.parameters, self.results) == (types_of(parameters), types_of(results))


at_hand: ContextVar[Compiled | None] = ContextVar("jax_stitch_compiled", default=None)
"""The program that JAX runs in place of the one that is being stitched."""


def compiled(traced: jax.stages.Traced, seconds: float) -> Compiled | None:
    """The program that JAX has compiled of a function that it has traced and called since; ``None`` if that is not at
    hand, or is another program than a stitched function would be captured as."""
    if traced.jaxpr.effects or not _computes_all(traced.jaxpr):
        return None
    lowered: Any = traced.lower()._lowering  # JAX has it; what it compiled hangs on it.
    executable = lowered._executable
    if executable is None or lowered.const_args or lowered._compiler_options_kvs:
        return None
    if len(executable.xla_executable.local_devices()) != 1:
        return None
    parameters, results = (
        [physical_aval(jax.ShapeDtypeStruct(a.shape, a.dtype)) for a in avals]
        for avals in (executable.in_avals, executable.out_avals)
    )
    try:
        text = full_text(executable.xla_executable)
    except jax.errors.JaxRuntimeError:  # Loaded from a cache that has machine code alone.
        return None
    return Compiled(text, seconds, types_of(parameters), types_of(results))


def _computes_all(jaxpr: ClosedJaxpr) -> bool:
    """Whether no result is an argument, a constant or another result: those are not part of a stitched operation."""
    results, given = jaxpr.jaxpr.outvars, {*jaxpr.jaxpr.invars, *jaxpr.jaxpr.constvars}
    computed = {result for result in results if isinstance(result, Var)} - given
    return len(computed) == len(results)


def types_of(of: Sequence[jax.ShapeDtypeStruct]) -> Types:
    return tuple((tuple(a.shape), str(a.dtype)) for a in of)
