"""Python's collector of cycles, put off for a moment, or begun less often for as long as something takes.

It goes through all objects of a process, 60 to 90 ms in one that has imported Flax and Optax, whenever enough new ones
have been made. What is made here besides what ``jax.jit`` makes must not be what has it begin.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BETWEEN = 50_000
"""Objects that are made before what can be freed is looked for, by one who makes many and has few cycles among them.
Python's own number is 700: a graph of thousands of nodes, nearly all of which stay, was gone through again and again.
"""


@contextmanager
def seldom() -> Iterator[None]:
    """Begin collections after ``BETWEEN`` new objects at the earliest meanwhile, in any thread."""
    global _seldom, _usual
    with _lock:
        if _seldom == 0:
            _usual = gc.get_threshold()
            # Zero is never.
            if 0 < _usual[0] < BETWEEN:
                gc.set_threshold(BETWEEN, *_usual[1:])
        _seldom += 1
    try:
        yield
    finally:
        with _lock:
            _seldom -= 1
            if _seldom == 0 and gc.get_threshold() == (BETWEEN, *_usual[1:]):
                gc.set_threshold(*_usual)


@contextmanager
def put_off() -> Iterator[None]:
    """Collect nothing meanwhile, in any thread, unless the program has turned that off or on itself."""
    global _inside, _ours
    with _lock:
        if _inside == 0 and gc.isenabled():
            _ours = True
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _ours:
                _ours = False
                gc.enable()


def _after_fork() -> None:
    """Forget the threads that were inside: they are not in the child."""
    global _lock, _inside, _ours, _seldom
    if _ours:
        gc.enable()
    if _seldom:
        gc.set_threshold(*_usual)
    _lock, _inside, _ours, _seldom = threading.Lock(), 0, False, 0


_lock = threading.Lock()
_inside, _ours = 0, False
_seldom, _usual = 0, gc.get_threshold()

os.register_at_fork(after_in_child=_after_fork)
