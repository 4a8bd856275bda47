"""A thread that computes in Python and does not keep the others waiting.

Python lets a thread keep the interpreter for 5 ms at a time: a function called meanwhile would stall that long at each
return from XLA. So the thread rests for a moment, without the interpreter, after each short piece of work. It does so
where it calls a function, by Python's hook for profilers: by our compiled library where that is at hand
(``backend/launch/yielding.h``), else by a function of Python, which makes everything take twice as long. A thread that
got the interpreter in such a rest keeps it for the usual 5 ms.

From Python 3.12 on, a call of a Python function in another thread costs some 50 ns more meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_logger = logging.getLogger(__name__)

_SLICE, _REST = 0.0001, 0.0001
"""Seconds of work between two rests, and of a rest: calls meanwhile wait for the one at most, and wake in the other."""

_stopping = False
_library: ctypes.CDLL | None = None


class _Functions(ctypes.Structure):
    """``Python`` of ``yielding.h``."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("save_thread", "restore_thread", "call_one_argument", "release")]


@contextmanager
def giving_way(stopped: Callable[[FrameType], object]) -> Iterator[None]:
    """Let this thread give way meanwhile. After ``stop``, ``stopped`` is called with the frame of each function of
    Python that is entered; what it raises comes from there.
    """
    library = _prepared()
    if library is None:
        sys.setprofile(_in_python(stopped))
    else:
        ctypes.pythonapi.PyEval_SetProfile(_address(library.jax_stitch_yield), ctypes.py_object(stopped))
    try:
        yield
    finally:
        sys.setprofile(None)


def stop() -> None:
    """End all giving way, as the process ends: each thread asks what is to become of it."""
    global _stopping
    _stopping = True
    if _library is not None:
        _library.jax_stitch_stop_yielding()


def _prepared() -> ctypes.CDLL | None:
    """Return the library, where there is one, knowing Python's functions."""
    global _library
    if _library is None:
        from jax_stitch.backend.launch import (
            native,  # With JAX's own, which the first call of a function need not wait for.
        )

        try:
            library = native.at_hand()
        except Exception:  # Whatever it is, the thread has to do its work; who needs the library is told.
            _logger.debug("the compiled library cannot be had: Python's hook is used", exc_info=True)
            return None
        if library is not None:
            api = ctypes.pythonapi
            functions = (api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyObject_CallOneArg, api.Py_DecRef)
            given = _Functions(*(_address(f) for f in functions))
            times = (ctypes.c_int64(round(1e9 * seconds)) for seconds in (_SLICE, _REST))
            library.jax_stitch_set_yielding(ctypes.byref(given), *times)
            _library = library
            if _stopping:
                stop()
    return _library


def _address(function: Any) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)


def _in_python(stopped: Callable[[FrameType], object]) -> Callable[[FrameType, str, Any], None]:
    clock, sleep = time.perf_counter, time.sleep
    since = clock()

    def at_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal since
        if _stopping:
            if event == "call":
                stopped(frame)
        elif clock() - since > _SLICE:
            sleep(_REST)
            since = clock()

    return at_event
