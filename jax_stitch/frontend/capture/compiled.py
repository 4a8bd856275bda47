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

from jax_stitch.frontend.capture.hlo_text import full_text
from jax_stitch.frontend.capture.physical import physical_aval
from jax_stitch.util.jax_names import ClosedJaxpr, Var

_PER_SECOND = 700_000
"""Characters of HLO that XLA makes in a second of processor time, where it is quick."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Optimized HLO, as XLA's default options have it."""

    text: str = field(repr=False)
    seconds: float
    """Of processor time that its first call took; 0 where that is not known."""

    @property
    def cost(self) -> float:
        """Return seconds of processor time that XLA took for it, at least about."""
        return max(self.seconds, len(self.text) / _PER_SECOND)


@dataclass(frozen=True, slots=True)
class Executable:
    """A program that JAX has compiled for one device."""

    seconds: float
    """As in ``Compiled``."""
    parameters: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[jax.ShapeDtypeStruct, ...]
    _executable: Any = field(repr=False)

    def for_types(
        self, parameters: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]
    ) -> Compiled | None:
        """Return its HLO, where it takes and returns arrays of these types, in order; else ``None``. Another part of
        the function does not: one in which large arrays that the function closes over are arguments, or unused
        arguments are left out.
        """
        if (_types(self.parameters), _types(self.results)) != (_types(parameters), _types(results)):
            return None
        try:
            return Compiled(full_text(self._executable), self.seconds)
        except jax.errors.JaxRuntimeError:  # Loaded from a cache that has machine code alone.
            return None


at_hand: ContextVar[Executable | None] = ContextVar("jax_stitch_compiled", default=None)
"""The program that JAX runs in place of the one that is being stitched."""


def executable_of(traced: jax.stages.Traced, seconds: float) -> Executable | None:
    """Return what JAX has compiled of a function that it has traced and called since; ``None`` if that is not at hand,
    or is another program than a stitched function would be captured as.
    """
    if traced.jaxpr.effects or not _computes_all(traced.jaxpr):
        return None
    lowered: Any = traced.lower()._lowering  # JAX has it; what it compiled hangs on it.
    compiled = lowered._executable
    if compiled is None or lowered.const_args or lowered._compiler_options_kvs:
        return None
    if len(compiled.xla_executable.local_devices()) != 1:
        return None
    parameters, results = (
        tuple(physical_aval(jax.ShapeDtypeStruct(a.shape, a.dtype)) for a in avals)
        for avals in (compiled.in_avals, compiled.out_avals)
    )
    return Executable(seconds, parameters, results, compiled.xla_executable)


def _computes_all(jaxpr: ClosedJaxpr) -> bool:
    """Return whether no result is an argument, a constant or another result: those are not part of a stitched
    operation.
    """
    results, given = jaxpr.jaxpr.outvars, {*jaxpr.jaxpr.invars, *jaxpr.jaxpr.constvars}
    computed = {result for result in results if isinstance(result, Var)} - given
    return len(computed) == len(results)


def _types(of: Sequence[jax.ShapeDtypeStruct]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(a.shape), str(a.dtype)) for a in of]
