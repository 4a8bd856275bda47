"""Python's collector of cycles, put off for a moment.

It goes through all objects of a process, 60 to 90 ms in one that has imported Flax and Optax, whenever enough new ones
have been made. What is made here besides what ``jax.jit`` makes must not be what has it begin.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Has nothing collected meanwhile, in any thread, unless the program has turned that off or on itself."""
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
    """The threads that were inside are not in the child."""
    global _lock, _inside, _ours
    if _ours:
        gc.enable()
    _lock, _inside, _ours = threading.Lock(), 0, False


_lock = threading.Lock()
_inside, _ours = 0, False

os.register_at_fork(after_in_child=_after_fork)
