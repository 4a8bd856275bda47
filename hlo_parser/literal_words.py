"""How one value of a constant is written."""

from __future__ import annotations

import re

from .regex import regex

_FLOAT = r"(?:-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?|-\.\d++(?:[eE][+-]?\d++)?|-?inf|-?nan(?:\(0x[0-9a-fA-F]++\))?)"
ELEMENT = {
    "pred": regex(r"true|false|-?\d++", re.ASCII),
    "int": regex(r"-?\d++", re.ASCII),
    "float": regex(_FLOAT, re.ASCII),
    "complex": regex(rf"\(\s*+{_FLOAT}\s*+,\s*+{_FLOAT}\s*+\)", re.ASCII),
}
"""By kind of type: one value."""
