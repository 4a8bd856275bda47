"""The module, its computations and its instructions: immutable, typed, hashable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .literals import Literal
from .shapes import Shape
from .values import EMPTY


@dataclass(frozen=True, slots=True)
class Instruction:
    """One HLO operation. Names carry no ``%``.

    ``opcode`` is HLO's spelling; ``operands`` are names of instructions of the same computation, except for
    ``parameter`` (see ``parameter_number``) and ``constant`` (see ``literal``), which have none. ``attributes`` have
    the keys of the text and typed values; ``Verbatim`` where there is no type.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = EMPTY
    literal: Literal | None = None
    parameter_number: int | None = None
    metadata: Mapping[str, Any] = EMPTY
    is_root: bool = False
    control_predecessors: tuple[str, ...] = ()

    def __str__(self) -> str:
        from .write_module import write_instruction

        return write_instruction(self)


@dataclass(frozen=True, slots=True)
class Computation:
    """A function: instructions in the order of the text, operands before their users.

    ``execution_thread`` is "main" unless the computation runs elsewhere.
    """

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False
    execution_thread: str = "main"
    parameters: tuple[Instruction, ...] = field(init=False, repr=False, compare=False)
    """The parameters by number."""
    _index: dict[str, Instruction] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parameters = [i for i in self.instructions if i.parameter_number is not None]
        object.__setattr__(self, "parameters", tuple(sorted(parameters, key=lambda i: i.parameter_number or 0)))
        object.__setattr__(self, "_index", {i.name: i for i in self.instructions})

    def __str__(self) -> str:
        from .write_module import write_computation

        return write_computation(self)

    @property
    def root(self) -> Instruction:
        """Return the instruction whose value the computation returns."""
        last = self.instructions[-1]  # it mostly is
        return last if last.is_root else next((i for i in self.instructions if i.is_root), last)

    def __getitem__(self, name: str) -> Instruction:
        return self._index[name]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A stretch of source; the ids count from 1 in the module's ``file_names`` and ``function_names``."""

    file_name_id: int
    function_name_id: int
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame of a stack; the outermost has 0 for its parent. (The text adds 1 to parents; this does not.)"""

    file_location_id: int
    parent_frame_id: int


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The tables by which metadata's ``stack_frame_id`` names a stack of source locations. All ids count from 1."""

    file_names: tuple[str, ...] = ()
    function_names: tuple[str, ...] = ()
    file_locations: tuple[FileLocation, ...] = ()
    frames: tuple[StackFrame, ...] = ()

    def stack(self, frame_id: int) -> list[tuple[str, int, str]]:
        """Return (file, line, function) from the innermost frame outwards; empty if the tables do not know the id."""
        stack: list[tuple[str, int, str]] = []
        while 0 < frame_id <= len(self.frames) and len(stack) <= len(self.frames):
            frame = self.frames[frame_id - 1]
            if not 0 < frame.file_location_id <= len(self.file_locations):
                break
            at = self.file_locations[frame.file_location_id - 1]
            if not (
                0 < at.file_name_id <= len(self.file_names) and 0 < at.function_name_id <= len(self.function_names)
            ):
                break
            stack.append((self.file_names[at.file_name_id - 1], at.line, self.function_names[at.function_name_id - 1]))
            frame_id = frame.parent_frame_id
        return stack


@dataclass(frozen=True, slots=True)
class Module:
    """A whole HLO module; ``attributes`` are those of its header line."""

    name: str
    computations: tuple[Computation, ...]
    attributes: Mapping[str, Any] = EMPTY
    stack_frames: StackFrames | None = None
    entry: Computation = field(init=False, repr=False, compare=False)
    """The computation marked ENTRY, else the last."""
    _index: dict[str, Computation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.computations:
            raise ValueError(f"module {self.name!r} has no computations")
        entry = next((c for c in self.computations if c.is_entry), self.computations[-1])
        object.__setattr__(self, "entry", entry)
        object.__setattr__(self, "_index", {c.name: c for c in self.computations})

    def __str__(self) -> str:
        from .write_module import write_module

        return write_module(self)

    def computation(self, name: str) -> Computation:
        """Return the computation of that name (without ``%``). Raises KeyError."""
        return self._index[name]

    def stack_frame(self, frame_id: int) -> list[tuple[str, int, str]]:
        """Return (file, line, function) of a ``stack_frame_id``, innermost first; empty if the module does not
        know it.
        """
        return [] if self.stack_frames is None else self.stack_frames.stack(frame_id)
