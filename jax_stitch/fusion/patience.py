"""How long better plans are looked for once there is one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Patience:
    """So many seconds of this process's processor time that may go into that, and what of them is left.

    The way to the first plan does not count: a program that is slow to read would have no time left for its search.
    """

    def __init__(self, seconds: float = math.inf):
        self._left = seconds
        self._since: float | None = None

    @property
    def left(self) -> float:
        """Return seconds; negative where more has been spent."""
        return self._left - (0.0 if self._since is None else time.process_time() - self._since)

    @property
    def is_over(self) -> bool:
        """Return whether no better plan is looked for any more."""
        return self.left <= 0

    @property
    def is_endless(self) -> bool:
        """Return whether the best plan is asked for, whatever it takes."""
        return self._left == math.inf

    def has(self, seconds: float) -> bool:
        """Return whether so many are left."""
        return self.left >= seconds

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count what is done meanwhile; once if one such block is in another."""
        if self.is_endless or self._since is not None:
            yield
            return
        self._since = time.process_time()
        try:
            yield
        finally:
            self._left, self._since = self.left, None


ENDLESS = Patience()
