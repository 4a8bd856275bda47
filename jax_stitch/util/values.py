"""A value like another but for some fields, whichever of the two kinds of values it is: a ``Struct`` or a dataclass."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # Type checkers know the fields of both kinds by it.
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return the same with ``changes`` in place of these fields."""
        if isinstance(value, Struct):
            return structs.replace(value, **changes)
        return dataclasses.replace(value, **changes)
