"""Constant values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .shapes import ArrayShape, Shape, TupleShape

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The value of a constant: an array, a tuple of literals, or missing (the text had ``{...}``).

    An array of one value throughout is a view of that value (all its strides are 0), however large it is.
    Where numpy has no type for it, because it is not installed or too old, ``text`` is the value as XLA writes it.

    Two literals are equal if shape and bits are, so that a NaN equals itself and 0.0 differs from -0.0.
    """

    shape: Shape
    array: np.ndarray[Any, Any] | None = None
    elements: tuple[Literal, ...] = ()
    text: str = ""

    @property
    def missing(self) -> bool:
        """Return whether the text elided (part of) the value."""
        if isinstance(self.shape, TupleShape):
            return any(e.missing for e in self.elements)
        return self.array is None and not self.text

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return the array, read-only, in logical order; bf16, f8 and int4 as ml_dtypes, pred as bool.

        Raises ValueError if there is none.
        """
        if isinstance(self.shape, TupleShape):
            raise ValueError(f"a tuple literal {self.shape} is not one array; see .elements")
        if self.text:
            raise ValueError(f"arrays need numpy and a recent ml_dtypes; this constant of shape {self.shape} is text")
        if self.array is None:
            raise ValueError(
                f"the text elides this constant of shape {self.shape} as {{...}}; "
                "print the module with print_large_constants=True"
            )
        return self.array

    def _key(self) -> tuple[object, ...]:
        value = None if self.array is None else uniform(self.array)
        stored = self.array if value is None else value
        return self.shape, self.elements, self.text, None if stored is None else stored.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @staticmethod
    def of(array: np.ndarray[Any, Any], shape: ArrayShape) -> Literal:
        """Return a literal of ``shape`` that holds ``array`` (made read-only)."""
        array = array.reshape(shape.dims)
        value = uniform(array)
        if value is not None:
            import numpy as np

            return Literal(shape, np.broadcast_to(value.reshape(()), shape.dims))
        array = array if array.flags.c_contiguous else array.copy(order="C")
        array.flags.writeable = False
        return Literal(shape, array)


def uniform(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the bits that all elements have, as an array of one element; None where they differ or there is none."""
    if not array.size:
        return None
    if not any(array.strides):
        return array[(0,) * array.ndim].reshape(1)
    bits = f"V{array.itemsize}"  # so that a NaN equals itself and 0.0 differs from -0.0
    flat = array.reshape(-1).view(bits)
    return flat[:1].view(array.dtype).copy() if flat[0] == flat[-1] and (flat == flat[0]).all() else None
