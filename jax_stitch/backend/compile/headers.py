"""The runtime headers that generated kernels include."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

RUNTIME = Path(__file__).resolve().parent.parent / "runtime"


@functools.cache
def headers() -> Mapping[str, str]:
    """Return every runtime header's text by the name it is included by."""
    return MappingProxyType({path.name: path.read_text() for path in sorted(RUNTIME.glob("*.h"))})
