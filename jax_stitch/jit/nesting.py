"""Room on Python's stack for functions that are nested deeply: a stitched one takes more frames than a jitted one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room(frames: int) -> Iterator[None]:
    """Allow so many frames more than Python does, while it lasts: what nests under ``jax.jit`` nests here too.

    The limit is the whole process's, so it is raised and lowered by differences, whoever else does so meanwhile.
    """
    with _lock:
        sys.setrecursionlimit(sys.getrecursionlimit() + frames)
    try:
        yield
    finally:
        with _lock:
            sys.setrecursionlimit(max(sys.getrecursionlimit() - frames, 1))


_lock = threading.Lock()
