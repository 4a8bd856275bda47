"""A program that JAX Stitch fails on: its HLO, how it was to be stitched, and its arguments. On disk, a folder."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import hlo_parser
from hlo_parser import ELEMENT_TYPES, ArrayShape, Instruction, Module
from jax_stitch.jit.debug.reports import Settings

PROGRAM, SETTINGS, VALUES = "program.hlo", "settings.json", "values.npz"
NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Case:
    """A program, and values by the names of its parameters; of the others, random ones will do."""

    module: Module
    settings: Settings = field(default_factory=Settings)
    values: Mapping[str, np.ndarray] = field(default_factory=lambda: NOTHING)

    def arguments(self) -> list[np.ndarray]:
        """Return the arguments of the program, by number. Raises ``ValueError`` where one is no array."""
        return [self._argument(p) for p in self.module.entry.parameters]

    def _argument(self, parameter: Instruction) -> np.ndarray:
        if not isinstance(parameter.shape, ArrayShape):
            raise ValueError(f"the parameter {parameter.name} is no array but {parameter.shape}")
        known = self.values.get(parameter.name)
        return random_values(parameter.shape, parameter.parameter_number or 0) if known is None else known


def random_values(shape: ArrayShape, seed: int) -> np.ndarray:
    """Return normal floats, and integers that may be indices of a short dimension."""
    rng, kind = np.random.default_rng(seed), ELEMENT_TYPES[shape.dtype]
    if kind.kind in ("float", "complex"):
        return np.asarray(rng.standard_normal(shape.dims)).astype(kind.numpy)
    return np.asarray(rng.integers(0, 2 if kind.kind == "pred" else 8, shape.dims)).astype(kind.numpy)


def save(case: Case, folder: Path) -> None:
    """Write a case into a folder that is there."""
    (folder / PROGRAM).write_text(str(case.module))
    (folder / SETTINGS).write_text(json.dumps(asdict(case.settings), indent=2) + "\n")
    if case.values:
        (folder / VALUES).write_bytes(pack(case.module, case.values))


def load(folder: Path) -> Case:
    """Read it back. Raises ``OSError`` and ``hlo_parser.HloParseError``."""
    module = hlo_parser.parse((folder / PROGRAM).read_text())
    settings = Settings(**json.loads((folder / SETTINGS).read_text()))
    values = unpack(module, (folder / VALUES).read_bytes()) if (folder / VALUES).exists() else {}
    return Case(module, settings, values)


def pack(module: Module, values: Mapping[str, np.ndarray]) -> bytes:
    """Return values by the names of the entry's instructions, as bytes: NumPy's files know no bfloat16."""
    numbers = {i.name: n for n, i in enumerate(module.entry)}
    raw: dict[str, Any] = {
        str(numbers[name]): np.frombuffer(np.ascontiguousarray(v).tobytes(), np.uint8) for name, v in values.items()
    }
    file = io.BytesIO()
    np.savez_compressed(file, **raw)
    return file.getvalue()


def unpack(module: Module, data: bytes) -> dict[str, np.ndarray]:
    """Return the values that ``pack`` made bytes of, for the same module."""
    values = {}
    instructions = tuple(module.entry)
    with np.load(io.BytesIO(data)) as file:
        for key in file.files:
            i = instructions[int(key)]
            assert isinstance(i.shape, ArrayShape)
            values[i.name] = np.frombuffer(file[key].tobytes(), ELEMENT_TYPES[i.shape.dtype].numpy).reshape(
                i.shape.dims
            )
    return values
