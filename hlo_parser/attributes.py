"""Values of structured attributes. Each prints itself as XLA writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .shapes import Shape, TupleShape
from .values import FrozenDict, transposed

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window; ``window_dilation`` is XLA's ``rhs_dilate``, ``base_dilation`` its ``lhs_dilate``."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    reversed: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution, reduce-window or select-and-scatter."""

    dims: tuple[WindowDim, ...]

    def __str__(self) -> str:
        parts = []

        def part(name: str, values: list[str], default: str) -> None:
            if any(v != default for v in values):
                parts.append(f"{name}={'x'.join(values)}")

        part("size", [str(d.size) for d in self.dims], "")
        part("stride", [str(d.stride) for d in self.dims], "1")
        part("pad", [f"{d.pad_low}_{d.pad_high}" for d in self.dims], "0_0")
        part("lhs_dilate", [str(d.base_dilation) for d in self.dims], "1")
        part("rhs_dilate", [str(d.window_dilation) for d in self.dims], "1")
        part("rhs_reversal", [str(int(d.reversed)) for d in self.dims], "0")
        return "{" + " ".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class ConvDimensionNumbers:
    """Which dimension of input, kernel and output plays which part.

    The ranks exceed the number of named dimensions where some are unknown (``?``).
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]
    input_rank: int
    kernel_rank: int
    output_rank: int

    def __str__(self) -> str:
        def labels(rank: int, first: tuple[str, int], second: tuple[str, int], spatial: tuple[int, ...]) -> str:
            text = ["?"] * rank
            text[first[1]], text[second[1]] = first[0], second[0]
            for i, d in enumerate(spatial):
                text[d] = str(i)
            return "".join(text)

        source = labels(self.input_rank, ("b", self.input_batch), ("f", self.input_feature), self.input_spatial)
        kernel = labels(
            self.kernel_rank, ("i", self.kernel_input_feature), ("o", self.kernel_output_feature), self.kernel_spatial
        )
        result = labels(self.output_rank, ("b", self.output_batch), ("f", self.output_feature), self.output_spatial)
        return f"{source}_{kernel}->{result}"


@dataclass(frozen=True, slots=True)
class IotaTiles:
    """``[dims]<=[reshape]T(permutation)``: the numbers 0, 1, ... reshaped, transposed and reshaped again."""

    dims: tuple[int, ...]
    reshape: tuple[int, ...]
    permutation: tuple[int, ...]

    def numbers(self) -> tuple[int, ...]:
        """Return the device numbers, row-major in ``dims``."""
        return tuple(transposed(range(math.prod(self.reshape)), self.reshape, self.permutation))

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return the device numbers, of shape ``dims``."""
        import numpy as np

        return np.array(self.numbers(), np.int64).reshape(self.dims)

    def __str__(self) -> str:
        text = f"[{','.join(map(str, self.dims))}]<=[{','.join(map(str, self.reshape))}]"
        # XLA reads several dimensions only with their order, also where that changes nothing.
        return text if len(self.permutation) == 1 else text + f"T({','.join(map(str, self.permutation))})"


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a value is split over devices.

    ``kind`` is "replicated", "maximal", "manual", "unreduced", "unknown", "tiled" or "tuple" (then ``elements``). For
    "tiled", ``tile_dims`` are the tile counts of each dimension and then of the trailing subgroup dimensions;
    ``devices`` lists device numbers row-major, or is an ``IotaTiles``. ``last_tile_dims`` says what subgroup dimensions
    mean. ``metadata`` is verbatim. ``group`` is ``shard_as 3`` or ``shard_like 3``.
    """

    kind: str
    tile_dims: tuple[int, ...] = ()
    devices: tuple[int, ...] | IotaTiles = ()
    last_tile_dims: tuple[str, ...] = ()
    replicate_last: bool = False
    elements: tuple[Sharding, ...] = ()
    metadata: str = ""
    group: str = ""

    def __str__(self) -> str:
        if self.kind == "tuple":
            # XLA numbers every fifth element.
            return (
                "{"
                + ", ".join(f"/*index={i}*/{e}" if i and i % 5 == 0 else str(e) for i, e in enumerate(self.elements))
                + "}"
            )
        parts = [self.kind]
        if self.kind == "maximal":
            assert isinstance(self.devices, tuple)
            parts.append(f"device={self.devices[0]}")
        elif self.kind == "tiled":
            if isinstance(self.devices, IotaTiles):
                parts = [f"devices={self.devices}"]
            else:
                parts = [f"devices=[{','.join(map(str, self.tile_dims))}]{','.join(map(str, self.devices))}"]
            if self.replicate_last:
                parts.append("last_tile_dim_replicate")
            if self.last_tile_dims:
                parts.append(f"last_tile_dims={{{', '.join(self.last_tile_dims)}}}")
        if self.group:
            parts.append(self.group)
        if self.metadata:
            parts.append(f"metadata={self.metadata}")
        return "{" + " ".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Shapes with layouts of the entry computation's parameters and result."""

    parameters: tuple[Shape, ...]
    result: Shape

    def __str__(self) -> str:
        return "{" + f"{TupleShape(self.parameters)}->{self.result}" + "}"


@dataclass(frozen=True, slots=True)
class Alias:
    """An output (part) that shares a buffer with an input (part).

    ``kind`` is "may-alias", "must-alias" or empty, which on a module means may-alias.
    """

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...]
    kind: str = ""

    def __str__(self) -> str:
        kind = f", {self.kind}" if self.kind else ""
        return f"{_index(self.output_index)}: ({self.parameter}, {_index(self.parameter_index)}{kind})"


@dataclass(frozen=True, slots=True)
class Donor:
    """An input (part) whose buffer may be reused for any output."""

    parameter: int
    parameter_index: tuple[int, ...]

    def __str__(self) -> str:
        return f"({self.parameter}, {_index(self.parameter_index)})"


def _index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


class BackendConfig(FrozenDict[str, Any]):
    """A backend config that is a dictionary. ``text`` is how it was written, which is also how it prints.

    ``notation`` is "json", "mlir" (an attribute dictionary), or "other" for braces that are neither: the mapping is
    empty then. ``quoted`` says whether the text stood in quotes. Values of JSON are str, bool, int, float, None, tuple
    and FrozenDict. Values of MLIR are str, bool, numpy scalars (``3 : i32`` is np.int32(3), or 3 without numpy), tuple,
    FrozenDict, ``MlirArray`` for ``array<...>`` and ``dense<...>``, and Verbatim.
    """

    __slots__ = ("notation", "quoted", "text")
    text: str
    notation: str
    quoted: bool

    def __init__(self, values: Mapping[str, Any], text: str, notation: str, quoted: bool) -> None:
        super().__init__(values)
        self.text, self.notation, self.quoted = text, notation, quoted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendConfig) and self.text == other.text and self.quoted == other.quoted

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.text, self.notation, self.quoted)


@dataclass(frozen=True, slots=True)
class MlirArray:
    """``array<i64: 1, 2>`` (``dims`` is None) or ``dense<[1, 2]> : tensor<2xi64>``.

    ``element_type`` in MLIR's spelling; ``values`` in row-major order.
    """

    element_type: str
    values: tuple[Any, ...]
    dims: tuple[int, ...] | None = None

    def to_numpy(self) -> np.ndarray[Any, Any]:
        import numpy as np

        array = np.array(self.values)
        return (
            array
            if self.dims is None
            else np.broadcast_to(array, self.dims)
            if array.size == 1
            else array.reshape(self.dims)
        )
