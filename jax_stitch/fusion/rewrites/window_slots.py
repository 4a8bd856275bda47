"""The elements that an element of a windowed result is made of: each a slice of one array made ready.

Along a dimension a window combines ``size`` elements, ``window_dilation`` apart: so many slots, at starts that far
apart in the padded array. Where it goes over an array with holes (``base_dilation``), or where the windows that cover
an element are asked for, most of those slots would be empty: of ``size`` in a row only each ``spacing``-th counts.
There every element is repeated ``spacing`` times, so that a slot is each place's first, second, ... of those that
count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hlo_parser import WindowDim
from jax_stitch.graph.builder import Builder
from jax_stitch.graph.model import Node, TensorType


class Along(Struct, frozen=True):
    """What is done along one dimension: how the array is made ready, and where the slots start in it, in order."""

    places: int
    """Of the result."""
    padding: tuple[int, int, int]
    starts: tuple[int, ...]
    stride: int = 1
    spacing: int = 1
    """How often each element is repeated."""
    size: int = 1
    """Of the window, where elements are repeated."""
    phase: int = 0
    """Place ``p`` is the ``(p + phase) % spacing``-th repetition."""

    def offset(self, slot: int) -> int:
        """Return where place 0 of phase 0 is in the window that is the slot's, from the window's low end."""
        return (len(self.starts) - 1 - slot) * self.spacing

    def overhangs(self, slot: int) -> bool:
        """Return whether the slot's window does not reach all places."""
        return self.offset(slot) + self.spacing > self.size


def combined_along(window: WindowDim, source: int, places: int) -> Along:
    """Return the elements of ``source`` along a dimension that each of ``places`` windows combines."""
    w = window
    if w.base_dilation > 1 and w.stride == w.window_dilation == 1:
        return covering(source, w.size, w.base_dilation, w.size - 1 - w.pad_low, places)
    starts = tuple(j * w.window_dilation for j in range(w.size))
    return Along(places, (w.pad_low, w.pad_high, w.base_dilation - 1), starts, w.stride)


def covering(windows: int, size: int, stride: int, pad_low: int, places: int) -> Along:
    """Return the windows, of ``windows`` that are ``stride`` apart, that cover each of ``places`` elements."""
    most = -(-size // stride)
    low, high = (most - 1) * stride - pad_low, (most - 1) * stride + places
    padding = (low, high - low - windows * stride, 0)
    starts = tuple(range(0, most * stride, stride))
    return Along(places, padding, starts, 1, stride, size, pad_low % stride)


def made_ready(builder: Builder, origin: Node, value: int, along: Sequence[Along], fill: int) -> int:
    """Return an array repeated and padded, with the scalar ``fill``, so that each slot is a slice of it."""
    source = builder[value].tensor
    apart: list[int] = []
    remaining: list[int] = []
    for size, a in zip(source.dims, along, strict=True):
        remaining.append(len(apart))
        apart += [size] if a.spacing == 1 else [size, a.spacing]
    repeated = tuple(size * a.spacing for size, a in zip(source.dims, along, strict=True))
    value = builder.derive(
        origin, "broadcast", TensorType(source.dtype, tuple(apart)), [value], {"dimensions": tuple(remaining)}
    )
    value = builder.derive(origin, "reshape", TensorType(source.dtype, repeated), [value])
    padding = tuple(a.padding for a in along)
    dims = tuple(
        low + high + size + (size - 1) * inner for size, (low, high, inner) in zip(repeated, padding, strict=True)
    )
    return builder.derive(origin, "pad", TensorType(source.dtype, dims), [value, fill], {"padding": padding})


def in_slot(builder: Builder, origin: Node, ready: int, along: Sequence[Along], slots: Sequence[int]) -> int:
    """Return the element in a slot for each place: a slice of an array that is ``made_ready``."""
    starts = [a.starts[k] for a, k in zip(along, slots, strict=True)]
    cut = tuple((s, s + (a.places - 1) * a.stride + 1, a.stride) for s, a in zip(starts, along, strict=True))
    type_ = TensorType(builder[ready].tensor.dtype, tuple(a.places for a in along))
    return builder.derive(origin, "slice", type_, [ready], {"slice": cut})


def phases(builder: Builder, origin: Node, along: Sequence[Along], d: int) -> int:
    """Return which repetition each place is along dimension ``d``, as integers over the result's dimensions."""
    a, dims = along[d], [a.places for a in along]
    runs = -(-(a.places + a.phase) // a.spacing)
    apart = TensorType("s32", (*dims[:d], runs, a.spacing, *dims[d + 1 :]))
    counted = builder.derive(origin, "iota", apart, (), {"iota_dimension": d + 1})
    joined = TensorType("s32", (*dims[:d], runs * a.spacing, *dims[d + 1 :]))
    counted = builder.derive(origin, "reshape", joined, [counted])
    cut = tuple((a.phase, a.phase + a.places, 1) if k == d else (0, size, 1) for k, size in enumerate(dims))
    return builder.derive(origin, "slice", TensorType("s32", tuple(dims)), [counted], {"slice": cut})


def filled(builder: Builder, origin: Node, dtype: str, dims: Sequence[int], value: np.ndarray) -> int:
    """Return a constant everywhere."""
    scalar = builder.constant(origin, dtype, value)
    return builder.derive(origin, "broadcast", TensorType(dtype, tuple(dims)), [scalar], {"dimensions": ()})
