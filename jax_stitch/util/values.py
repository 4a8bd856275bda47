"""A value like another but for some fields, whichever of the two kinds of values it is: a ``Struct`` or a dataclass."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # Type checkers know the fields of both kinds by it.
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a value with ``changes`` in place of these fields; the value itself where these hold the same objects.

        Of a tuple the elements are compared, so that a rewrite of a tree returns the very tree if it changes nothing.
        """
        if isinstance(value, Struct):
            is_same = all(_is_same(getattr(value, name), new) for name, new in changes.items())
            return value if is_same else structs.replace(value, **changes)
        return dataclasses.replace(value, **changes)

    def _is_same(old: Any, new: Any) -> bool:
        if type(old) is tuple and type(new) is tuple and len(old) == len(new):
            return all(map(operator.is_, old, new))
        return old is new
