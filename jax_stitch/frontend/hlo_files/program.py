"""A program from a file: what it takes and returns, and how it is planned and run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import hlo_parser
from hlo_parser import Module
from jax_stitch.frontend.capture.errors import HloFileError
from jax_stitch.frontend.capture.given import Given
from jax_stitch.frontend.capture.physical import is_key
from jax_stitch.frontend.hlo_files.translate import stablehlo_of
from jax_stitch.frontend.hlo_files.widened import widened, wider
from jax_stitch.frontend.replay.rules.custom_call import load_lapack

_MARKS = {
    "cuda": ('"fusion_backend_config"', '"operation_queue_id"', "__cublas$", "__cudnn$", "__gpu$"),
    "cpu": ('"outer_dimension_partitions"', "__ynn_", "__onednn$"),
}
"""What only the passes of one of XLA's backends write, by the kind of device."""


@dataclass(frozen=True, eq=False)
class HloProgram:
    """A module that was read. Its function takes one array for each of ``parameters`` and returns one for each of
    ``results``: the entry's parameters and the elements of its root in order, the leaves of tuples one by one.
    """

    name: str
    where: str
    """What messages call it: the file, and the module where there are several."""
    parameters: tuple[jax.ShapeDtypeStruct, ...]
    names: tuple[str, ...]
    """Of the parameters, as the text has them; ``p[1]`` is a leaf of the tuple ``p``."""
    results: tuple[jax.ShapeDtypeStruct, ...]
    single: bool
    """Whether the root is one array, no tuple."""
    optimized: bool
    """Whether it is planned as it is; if not, XLA optimises it first."""
    partitions: int
    """Devices that the program runs on; the types are those of all devices together until XLA has split it."""
    text: str = field(repr=False)
    """HLO, all constants in it; products for cuBLAS's calls and convolutions for cuDNN's."""
    own_text: str = field(repr=False)
    """The same with these calls."""
    stablehlo: bytes = field(repr=False)
    """The same before XLA's passes, as MLIR bytecode."""
    plain: Module = field(repr=False)
    """What ``stablehlo`` was made from."""
    unrunnable: str | None
    """Why it can be planned and not run, as the end of a sentence; None where it can."""
    calls_lapack: bool
    """Whether it calls LAPACK, which XLA does not know before JAX has told it."""
    needs_x64: bool
    """Whether it has types of 64 bits, which JAX has but under ``jax_enable_x64``."""
    notes: tuple[str, ...] = ()
    """What a user should know about how it was read."""

    def function(self) -> Callable[..., Any]:
        """Return the program as a function that JAX can trace, also inside another. Given float64 in place of narrower
        numbers it computes in float64 throughout, where it can.
        """
        if self.calls_lapack:
            load_lapack()
        text = self.text if self.optimized else None
        usual = Given(self.name, self.stablehlo, self.results, text, self.own_text)

        def run(*arrays: Any) -> Any:
            taken = self.taken(arrays)
            is_wide = len(arrays) == len(self.parameters) and self._are_wide(taken)
            precise = self._in_float64 if is_wide else None
            if precise is None:
                self._check(arrays, taken)
            results = (precise or usual)(*taken)
            return results[0] if self.single else tuple(results)

        run.__name__ = run.__qualname__ = self.name.removeprefix("jit_")  # which JAX puts before names
        run.__doc__ = f"The HLO module {self.name} of {self.where}."
        return run

    def types(self) -> AbstractContextManager[Any]:
        """Return the context in which JAX has the types that the program needs."""
        return jax.enable_x64(True) if self.needs_x64 else contextlib.nullcontext()

    def made_for(self, kind: str) -> bool:
        """Return False if XLA has optimised it for another kind of device, as its notes for its own use show."""
        other = next((k for k, marks in _MARKS.items() if any(m in self.own_text for m in marks)), kind)
        return not self.optimized or other == kind

    def require_runnable(self) -> None:
        """Raise HloFileError where it cannot be run."""
        if self.unrunnable is not None:
            raise HloFileError(f"{self.where} cannot be run: {self.unrunnable}")

    @functools.cached_property
    def _in_float64(self) -> Given | None:
        wide = widened(self.plain)
        if wide is None or hlo_parser.verify(wide):
            return None
        try:
            module = stablehlo_of(wide, self.where)
        except HloFileError:  # XLA has no such operation on numbers of that width.
            return None
        return Given(f"{self.name}_in_float64", module, tuple(map(_precise, self.results)))

    def _are_wide(self, arrays: Sequence[Any]) -> bool:
        wide = list(map(_precise, self.parameters))
        return wide != list(self.parameters) and all(map(_is_of, arrays, wide))

    def check(self, arrays: Sequence[Any]) -> None:
        """Raise TypeError for arguments that it does not take."""
        self._check(arrays, self.taken(arrays))

    def taken(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments with Python's numbers in the types that are wanted, and PRNG keys as arrays."""
        if len(arrays) != len(self.parameters):
            return list(arrays)
        return [_array(a, p.dtype) for a, p in zip(arrays, self.parameters, strict=True)]

    def _check(self, arrays: Sequence[Any], taken: Sequence[Any]) -> None:
        if len(arrays) != len(self.parameters):
            takes = ", ".join(self.signature())
            raise TypeError(f"{self.name} takes {len(self.parameters)} arrays, not {len(arrays)}: {takes}")
        for n, (array, wanted) in enumerate(zip(taken, self.parameters, strict=True)):
            if not _is_of(array, wanted):
                given = shown(array) if hasattr(array, "dtype") else f"a {type(array).__name__}"
                raise TypeError(f"{self.name}: argument {n} ({self.names[n]}) has to be {shown(wanted)}, not {given}")

    def signature(self) -> list[str]:
        """Return each parameter's name and type."""
        return [f"{name}: {shown(p)}" for name, p in zip(self.names, self.parameters, strict=True)]


def _precise(type_: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(type_.shape, wider(type_.dtype))


def _is_of(array: Any, type_: jax.ShapeDtypeStruct) -> bool:
    return hasattr(array, "dtype") and (array.shape, array.dtype) == (type_.shape, type_.dtype)


def shown(array: Any) -> str:
    """Return a type as ``float32[8,16]``."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _array(value: Any, dtype: Any) -> Any:
    """Return an array: Python's numbers take the type that is wanted, as in JAX; PRNG keys are the words that they
    consist of.
    """
    if isinstance(value, bool | int | float | complex):
        return np.asarray(value, dtype)
    return jax.random.key_data(value) if hasattr(value, "dtype") and is_key(value) else value
