"""How one value of a constant is written."""

from __future__ import annotations

import re

_FLOAT = r"(?:-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?|-\.\d++(?:[eE][+-]?\d++)?|-?inf|-?nan(?:\(0x[0-9a-fA-F]++\))?)"
ELEMENT = {
    "pred": re.compile(r"true|false|-?\d++", re.ASCII),
    "int": re.compile(r"-?\d++", re.ASCII),
    "float": re.compile(_FLOAT, re.ASCII),
    "complex": re.compile(rf"\(\s*+{_FLOAT}\s*+,\s*+{_FLOAT}\s*+\)", re.ASCII),
}
"""By kind of type: one value."""
