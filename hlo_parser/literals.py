"""Constant values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .shapes import ArrayShape, Shape, TupleShape


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The value of a constant: an array, a tuple of literals, or missing (the text had ``{...}``).

    Two literals are equal if shape and bits are, so that a NaN equals itself and 0.0 differs from -0.0.
    """

    shape: Shape
    array: np.ndarray | None = None
    elements: tuple[Literal, ...] = ()

    @property
    def missing(self) -> bool:
        """True where the text elided (part of) the value."""
        if isinstance(self.shape, TupleShape):
            return any(e.missing for e in self.elements)
        return self.array is None

    def to_numpy(self) -> np.ndarray:
        """The array, read-only, in logical order; bf16, f8 and int4 as ml_dtypes, pred as bool.

        Raises ValueError if there is none.
        """
        if isinstance(self.shape, TupleShape):
            raise ValueError(f"a tuple literal {self.shape} is not one array; see .elements")
        if self.array is None:
            raise ValueError(
                f"the text elides this constant of shape {self.shape} as {{...}}; "
                "print the module with print_large_constants=True"
            )
        return self.array

    def _key(self) -> tuple[object, ...]:
        return self.shape, self.elements, None if self.array is None else self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @staticmethod
    def of(array: np.ndarray, shape: ArrayShape) -> Literal:
        """A literal of ``shape`` that holds ``array`` (made read-only)."""
        array = np.ascontiguousarray(array).reshape(shape.dims)
        array.flags.writeable = False
        return Literal(shape, array)
