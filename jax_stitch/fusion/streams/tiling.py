"""The tiles of a stream: which of its axes are rows, which is gone through tile by tile, and how each value lies.

All axes but the one that is summed up and one that is tiled beside it number the rows, with the tiles of the latter:
each row computes one tile of the results. A value of a tile has the dimensions ``[rows, its own, steps, lanes]``, of
which it lacks those of axes that it does not have; ``its own`` are dimensions that the stream knows nothing of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from math import ceil, prod

from msgspec import Struct

from jax_stitch.analysis.binding import Binding, Factor
from jax_stitch.fusion.streams.stream import Key, Stream

LEAST = 16
"""The fewest elements of a tile along an axis."""

VECTOR = 8
"""Elements of which tiles have whole multiples."""


class Tiling(Struct, frozen=True):
    """``axis`` is gone through ``step`` elements at a time, ``lane`` by ``lanes`` elements in each row. ``grid`` are
    the other axes, in the order in which they number the rows, before the tiles of ``lane``.
    """

    axis: Factor
    step: int
    lane: Factor
    lanes: int
    grid: tuple[Factor, ...]

    @property
    def steps(self) -> int:
        """Return the number of tiles of the axis; the last may go past its end."""
        return ceil(self.axis.size / self.step)

    @property
    def tiles(self) -> int:
        """Return the number of tiles of the lanes' axis; the last may go past its end."""
        return ceil(self.lane.size / self.lanes)

    @property
    def is_ragged(self) -> bool:
        """Return whether the last tile goes past the end of the axis."""
        return self.axis.size % self.step > 0

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return prod(f.size for f in self.grid) * self.tiles

    def parts(self, binding: Binding) -> tuple[Factor, ...]:
        """Return the axes of the dimensions of a value, major to minor; its own dimensions have no stride."""
        return tuple(part for dim in binding for f in dim for part in self._split(f))

    def _split(self, factor: Factor) -> Iterable[Factor]:
        if factor.stride is None:
            return (factor,)
        axes = (self.axis, self.lane, *self.grid)
        inside = [f for f in axes if factor.stride <= (f.stride or 0) < factor.stride * factor.size]
        return sorted(inside, key=lambda f: -(f.stride or 0))

    def has_axis(self, binding: Binding) -> bool:
        """Return whether a value has the axis that is gone through."""
        return self.axis in self.parts(binding)

    def has_lanes(self, binding: Binding) -> bool:
        """Return whether a value has the lanes' axis."""
        return self.lane in self.parts(binding)

    def has_rows(self, binding: Binding) -> bool:
        """Return whether a value differs from row to row."""
        return any(f == self.lane or f in self.grid for f in self.parts(binding))


def tiling(stream: Stream, most: int, most_lanes: int) -> Tiling | None:
    """Return how a stream is divided into tiles of ``most`` elements at most along its axis, and ``most_lanes`` along
    another; None where its axes are too short or do not nest, or no value is shared by all lanes.
    """
    axes = _axes([*stream.operands, *stream.leaves()])
    if axes is None or stream.axis not in axes:
        return None
    others = [f for f in axes if f != stream.axis]
    shared = [f for f in others if any(_lacks(leaf, f, stream) for leaf in stream.leaves())]
    lane = max(shared, key=lambda f: f.size, default=None)
    if lane is None:
        return None
    if min(stream.axis.size, lane.size) < LEAST:
        return None
    step, lanes = _length(stream.axis.size, most), _length(lane.size, most_lanes)
    grid = tuple(sorted((f for f in others if f != lane), key=lambda f: -(f.stride or 0)))
    made = Tiling(stream.axis, step, lane, lanes, grid)
    return made if all(_fits(stream, made, key) for key in stream.operands) else None


def _fits(stream: Stream, tiling: Tiling, key: Key) -> bool:
    """Return whether a product multiplies steps by lanes: each of its operands has one of these axes, or sums up what
    has both.
    """
    if stream.graph[key.node].op != "dot":
        return True
    has = [(tiling.has_axis(o.binding), tiling.has_lanes(o.binding)) for o in stream.operands[key]]
    if key in stream.reductions:
        terms = [o for o in stream.operands[key] if o in stream.operands]
        return len(terms) == 1 and sorted(has) == [(True, False), (True, True)]
    return sorted(has) == [(False, True), (True, False)]


def _lacks(leaf: Key, factor: Factor, stream: Stream) -> bool:
    """Return whether a leaf with the axis, and more, is the same along another one."""
    assert factor.stride is not None
    strides = [f for dim in leaf.binding for f in dim]
    covered = any(f.stride is not None and f.stride <= factor.stride < f.stride * f.size for f in strides)
    return stream.has_axis(leaf) and len(strides) > 1 and not covered


def _axes(keys: Sequence[Key]) -> tuple[Factor, ...] | None:
    """Return the finest factors that all bindings are made of; None where some do not nest."""
    bounds = {1}
    for key in keys:
        for dim in key.binding:
            for f in dim:
                if f.stride is not None:
                    bounds |= {f.stride, f.stride * f.size}
    ordered = sorted(bounds)
    if any(b % a for a, b in itertools.pairwise(ordered)):
        return None
    return tuple(Factor(b // a, a) for a, b in itertools.pairwise(ordered))


def _length(size: int, most: int) -> int:
    """Return the length of the tiles of an axis: of whole vectors, where it is longer than one tile. Elements past the
    end are computed for nobody; short tiles take longer for what is done once for each.
    """
    if size <= most:
        return size
    lengths = range(VECTOR * ceil(LEAST / VECTOR), most + 1, VECTOR)
    return min(lengths, key=lambda n: ceil(size / n) * (n + VECTOR))
