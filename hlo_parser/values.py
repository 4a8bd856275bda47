"""Immutable containers and small values that attributes are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed and can be hashed (its values must be hashable)."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is immutable; build a new one")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __or__(self, other: Mapping[K, V]) -> FrozenDict[K, V]:  # type: ignore[override]
        return FrozenDict({**self, **other})


def transposed(values: Sequence[int], dims: Sequence[int], order: Sequence[int]) -> Iterator[int]:
    """Return the row-major values of an array of ``dims``, row-major in the order of dimensions given: numpy's
    transpose.
    """
    strides = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
    places = [0]
    for d in order:
        places = [place + n * strides[d] for place in places for n in range(dims[d])]
    return (values[place] for place in places)


EMPTY: FrozenDict[str, Any] = FrozenDict()


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text this parser has no type for, exactly as it stood: an unknown attribute, or a known one in a new notation."""

    text: str

    def __str__(self) -> str:
        return self.text
