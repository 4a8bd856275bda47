"""Three kinds measured in turn: ``jax.jit``, ``stitch_jit``, and ``jax.jit`` again: what differs there is noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KINDS = ("plain", "stitched", "again")


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured: seconds (medians over rounds), and how they compare."""

    name: str
    plain: float
    stitched: float
    ratio: float
    """Stitched over plain: the median of the rounds' ratios."""
    noise: float
    """The same for a second ``jax.jit``."""


def order(n: int) -> tuple[str, ...]:
    """The kinds as they follow each other in round ``n``: each is first, second and last equally often."""
    return KINDS[n % 3 :] + KINDS[: n % 3]


def row_of(name: str, samples: Mapping[str, Sequence[float]]) -> Row:
    """The row of all rounds' seconds by kind."""

    def ratio(kind: str) -> float:
        return statistics.median(a / b for a, b in zip(samples[kind], samples["plain"], strict=True))

    plain, stitched = (statistics.median(samples[kind]) for kind in KINDS[:2])
    return Row(name, plain, stitched, ratio("stitched"), ratio("again"))
