"""Values of which there is one object for equal fields (hash consing): comparing them is comparing addresses."""

from __future__ import annotations

import threading
from typing import Any, Self, dataclass_transform
from weakref import WeakValueDictionary

_made: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_lock = threading.Lock()


@dataclass_transform(frozen_default=True, eq_default=False)
class Interned:
    """Base of such values. A class lists its fields in ``__match_args__`` and ``__slots__``, in order; they are
    hashable. What nobody refers to any more is dropped.
    """

    __slots__ = ("__weakref__",)
    __match_args__: tuple[str, ...] = ()

    def __new__(cls, *fields: Any) -> Self:
        key = (cls, *fields)
        made = _made.get(key)
        if made is None:
            with _lock:  # Two threads that plan must not make one each.
                made = _made.get(key)
                if made is None:
                    made = object.__new__(cls)
                    for name, value in zip(cls.__match_args__, fields, strict=True):
                        object.__setattr__(made, name, value)
                    _made[key] = made
        instance: Self = made
        return instance

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} has fixed fields: {name} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({fields})"
