"""Names of a package that are imported when they are first asked for (PEP 562).

What plans kernels does not import JAX, so that a process that only plans starts without it: a package that has both
names its modules here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def later(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package: by name, the module that has it. What was asked for once is the
    package's own.

    Its ``__dir__`` names what was not asked for yet, too.
    """
    own = sys.modules[package].__dict__

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = own[name] = getattr(importlib.import_module(homes[name]), name)
        return value

    own["__dir__"] = lambda: sorted({*own, *homes})
    return get
