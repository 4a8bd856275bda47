"""Whether a program is better stitched, as it was found out once, kept on disk beside the programs."""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import asdict

from jax_stitch import store

_KIND = "verdicts"


class Verdict(Struct, frozen=True):
    """What a function runs as from now on, and why."""

    stitched: bool
    reason: str
    """In a few words: "1.4 times jax.jit", "nothing worth stitching: ..."."""
    plain_seconds: float | None = None
    """Of a call under ``jax.jit``, and stitched: medians of real calls, taken in turn. None where nothing was timed."""
    stitched_seconds: float | None = None
    programs: tuple[str, ...] = ()
    """The names of the rebuilt programs that it needs."""
    kernels: int = 0
    """Launches of stitched kernels in a call, in place of so many of XLA's."""
    replaced: int = 0

    @property
    def speedup(self) -> float | None:
        """Time under ``jax.jit`` over time stitched."""
        if self.plain_seconds is None or not self.stitched_seconds:
            return None
        return self.plain_seconds / self.stitched_seconds


def keep(name: str, verdict: Verdict) -> None:
    """Stores the verdict on a program, for ``load`` in whatever process."""
    store.write(_KIND, name, json.dumps(asdict(verdict)).encode())


def load(name: str) -> Verdict | None:
    """The verdict on the program of that name, if there is one."""
    data = store.read(_KIND, name)
    if data is None:
        return None
    facts = json.loads(data)
    return Verdict(**facts | {"programs": tuple(facts["programs"])})
