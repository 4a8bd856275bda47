"""Arrays in shared memory lie inside it, apart from each other; indices have as many bits as their buffers need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import ceil
from typing import Any

from hlo_parser.dtypes import ELEMENT_TYPES
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.literals import numpy_type
from jax_stitch.kernel.model import Part, RowShape
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.verify.bounds import inside
from jax_stitch.kernel.verify.finding import Finding, shown

NARROW = 1 << 31
"""Elements that indices of 32 bits reach."""


def memory_findings(part: Part, shared_bytes: int) -> Iterator[Finding]:
    """Yield faults of a part's shared memory, of which its launch has ``shared_bytes``, and of its buffers' sizes."""
    placed = sorted(
        (s.offset, s.offset + _bytes(part, s), s.name, s)
        for s in _statements((*part.before, *part.body, *part.after))
        if isinstance(s, st.Allocate) and s.space in (Space.SHARED, Space.TEAM) and not s.scratch
    )
    for _, end, name, s in placed:
        if end > shared_bytes:
            yield Finding(part.name, f"{name} ends at byte {end} of {shared_bytes} of shared memory", shown(s))
    for a, b in pairwise(placed):
        if a[1] > b[0]:
            yield Finding(part.name, f"{a[2]} and {b[2]} are in the same place of shared memory", shown(b[3]))
    for p in part.parameters:
        if p.size > NARROW and not part.wide:
            yield Finding(part.name, f"the {p.size} elements of {p.name} need indices of 64 bits")


def _statements(statements: Iterable[Any]) -> Iterator[Any]:
    for s in statements:
        yield s
        yield from _statements(inside(s))


def _bytes(part: Part, s: st.Allocate) -> int:
    stored = ELEMENT_TYPES[s.dtype].numpy.itemsize if s.in_memory else None
    if s.space is Space.TEAM:
        return s.size * s.copies * (stored or numpy_type(s.dtype).itemsize)
    shape = part.shape
    assert isinstance(shape, RowShape)
    places = shape.rows_per_block * s.size
    if shape.cluster > 1:
        places = ceil(s.size / shape.lanes) * (shape.rows_per_block * shape.lanes // shape.cluster)
    return places * (stored or _width(part, s.dtype))


def _width(part: Part, dtype: str) -> int:
    """Return bytes of a value as it is computed; of a structure with its padding."""
    made = next((c for c in part.combiners if c.name == dtype), None)
    sizes = [numpy_type(t).itemsize for t in (made.dtypes if made else (dtype,))]
    return ceil(sum(sizes) / max(sizes)) * max(sizes)
