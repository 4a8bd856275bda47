"""How long better plans are looked for once there is one."""

from __future__ import annotations

import math
import time

from msgspec import Struct


class Patience(Struct, frozen=True):
    """Until this process has used so much processor time, in seconds of ``time.process_time``."""

    end: float = math.inf

    @classmethod
    def of(cls, seconds: float) -> Patience:
        """So many seconds from now on."""
        return cls(time.process_time() + seconds)

    @property
    def is_over(self) -> bool:
        return time.process_time() > self.end

    def has(self, seconds: float) -> bool:
        """Whether so many are left."""
        return time.process_time() + seconds <= self.end


ENDLESS = Patience()
