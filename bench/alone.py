"""One process of the benchmarks measures at a time, while others compile."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone() -> Iterator[None]:
    """While no other process of this machine is in here."""
    with (Path(tempfile.gettempdir()) / "jax-stitch-bench.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
