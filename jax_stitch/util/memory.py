"""Memory that nobody uses, back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give free memory back to the system, if the C library can be told (glibc): XLA's compiler leaves hundreds of
    megabytes behind that stay this process's while compilers run beside it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
