"""Shapes and layouts: what ``f32[8,16]{1,0:T(8,128)}`` says."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import ELEMENT_TYPES


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory: dimensions from the fastest varying to the slowest.

    ``tiles`` are tile shapes (a ``None`` in one stands for ``*``, a combined dimension); ``element_bits`` is 0 unless
    elements are packed; ``extra`` holds, verbatim and in order, what is rare: level types, split configurations, index
    types, physical shapes.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int | None, ...], ...] = ()
    tail_padding_alignment: int = 1
    element_bits: int = 0
    memory_space: int = 0
    extra: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = ",".join(map(str, self.minor_to_major))
        notes = [note for note in self.extra if note.startswith("D(")]
        if self.tiles:
            notes.append(
                "T" + "".join("(" + ",".join("*" if d is None else str(d) for d in tile) + ")" for tile in self.tiles)
            )
        if self.tail_padding_alignment != 1:
            notes.append(f"L({self.tail_padding_alignment})")
        notes += [note for note in self.extra if note[0] in "#*"]
        if self.element_bits:
            notes.append(f"E({self.element_bits})")
        if self.memory_space:
            notes.append(f"S({self.memory_space})")
        notes += [note for note in self.extra if note[0] not in "D#*"]
        return "{" + text + (":" + "".join(notes) if notes else "") + "}"


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """An array: element type, dimensions (major to minor) and layout.

    ``dynamic[i]`` says that ``dims[i]`` is a bound, not a size (``<=8``); a dimension of -1 has no bound (``?``).
    ``dynamic`` is empty where no dimension is dynamic. ``layout`` is None where the text gives none.
    """

    dtype: str
    dims: tuple[int, ...]
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements (at most, where dimensions are dynamic)."""
        size = 1
        for d in self.dims:
            size *= d
        return size

    @property
    def bytes(self) -> int:
        """Return bytes of the elements, packed where the layout packs them, else at least a byte each."""
        bits = self.layout.element_bits if self.layout is not None and self.layout.element_bits else 0
        return -(-self.size * (bits or max(8, ELEMENT_TYPES[self.dtype].bits)) // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{_dims(self)}]{'' if self.layout is None else self.layout}"


def _dims(shape: ArrayShape) -> str:
    if not shape.dynamic:
        return ",".join(map(str, shape.dims))
    return ",".join(
        "?" if d < 0 else f"<={d}" if dynamic else str(d) for d, dynamic in zip(shape.dims, shape.dynamic, strict=True)
    )


@dataclass(frozen=True, slots=True)
class TupleShape:
    """Several values at once."""

    elements: tuple[Shape, ...]

    def __str__(self) -> str:
        # XLA numbers every fifth element of long tuples in a comment.
        texts = [f"/*index={i}*/{e}" if i and i % 5 == 0 else str(e) for i, e in enumerate(self.elements)]
        return f"({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class TokenShape:
    """An ordering token: no data."""

    def __str__(self) -> str:
        return "token[]"


@dataclass(frozen=True, slots=True)
class OpaqueShape:
    """A value only a runtime understands."""

    def __str__(self) -> str:
        return "opaque[]"


@dataclass(frozen=True, slots=True)
class BufferShape:
    """A mutable buffer of an array shape: ``b(f32[8])``."""

    array: ArrayShape

    def __str__(self) -> str:
        return f"b({self.array})"


Shape = ArrayShape | TupleShape | TokenShape | OpaqueShape | BufferShape


def part(shape: Shape, index: tuple[int, ...]) -> Shape | None:
    """Return the part of nested tuples at an index; None where there is none."""
    for n in index:
        if not (isinstance(shape, TupleShape) and 0 <= n < len(shape.elements)):
            return None
        shape = shape.elements[n]
    return shape


def compatible(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are one but for layouts and for which dimensions are dynamic: all that XLA asks of a
    shape that is written a second time."""
    return a is b or _static(a) == _static(b)


def _static(shape: Shape) -> Shape:
    match shape:
        case ArrayShape():
            return ArrayShape(shape.dtype, shape.dims)
        case TupleShape():
            return TupleShape(tuple(map(_static, shape.elements)))
        case BufferShape():
            return BufferShape(ArrayShape(shape.array.dtype, shape.array.dims))
        case _:
            return shape


def with_default_layout(shape: Shape) -> Shape:
    """Return the shape with the last dimension as the fastest in each array."""
    match shape:
        case ArrayShape():
            layout = Layout(tuple(reversed(range(shape.rank)))) if shape.rank else None
            return ArrayShape(shape.dtype, shape.dims, layout, shape.dynamic)
        case TupleShape():
            return TupleShape(tuple(map(with_default_layout, shape.elements)))
        case _:
            return shape


def without_layout(shape: Shape) -> Shape:
    """Return the logical shape: what remains when layouts are dropped."""
    match shape:
        case ArrayShape():
            return shape if shape.layout is None else ArrayShape(shape.dtype, shape.dims, None, shape.dynamic)
        case TupleShape():
            return TupleShape(tuple(map(without_layout, shape.elements)))
        case BufferShape():
            return BufferShape(ArrayShape(shape.array.dtype, shape.array.dims, None, shape.array.dynamic))
        case _:
            return shape
