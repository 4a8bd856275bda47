"""Reads and writes XLA's HLO text: ``parse(text) -> Module``, ``str(module)``."""

from __future__ import annotations

from .attributes import (
    Alias,
    BackendConfig,
    ConvDimensionNumbers,
    Donor,
    EntryLayout,
    IotaTiles,
    MlirArray,
    ReplicaGroups,
    Sharding,
    Window,
    WindowDim,
)
from .dtypes import ELEMENT_TYPES, ElementType
from .errors import HloParseError
from .literals import Literal
from .model import Computation, FileLocation, Instruction, Module, StackFrame, StackFrames
from .opcodes import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, OPCODES
from .read_module import read_module as parse
from .shapes import ArrayShape, BufferShape, Layout, OpaqueShape, Shape, TokenShape, TupleShape, without_layout
from .values import FrozenDict, Verbatim

__all__ = [
    "COLLECTIVES",
    "ELEMENTWISE_BINARY",
    "ELEMENTWISE_UNARY",
    "ELEMENT_TYPES",
    "OPCODES",
    "Alias",
    "ArrayShape",
    "BackendConfig",
    "BufferShape",
    "Computation",
    "ConvDimensionNumbers",
    "Donor",
    "ElementType",
    "EntryLayout",
    "FileLocation",
    "FrozenDict",
    "HloParseError",
    "Instruction",
    "IotaTiles",
    "Layout",
    "Literal",
    "MlirArray",
    "Module",
    "OpaqueShape",
    "ReplicaGroups",
    "Shape",
    "Sharding",
    "StackFrame",
    "StackFrames",
    "TokenShape",
    "TupleShape",
    "Verbatim",
    "Window",
    "WindowDim",
    "parse",
    "without_layout",
]
