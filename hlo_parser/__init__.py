"""Reads, checks, rewrites and writes XLA's HLO text.

``parse(text)`` gives a ``Module`` or raises ``HloParseError``; ``str(module)`` gives text that XLA reads. Modules are
immutable and hashable; ``hlo_parser.rewrite`` makes new ones from old, ``hlo_parser.analysis`` answers questions about
dataflow, ``verify(module)`` lists every fault. From a shell: ``python -m hlo_parser check|print|stats|dot FILE``.
"""

from __future__ import annotations

from .analysis import dominators, post_dominators, reachability, topological_order, users
from .attributes import (
    Alias,
    BackendConfig,
    ConvDimensionNumbers,
    Donor,
    EntryLayout,
    IotaTiles,
    MlirArray,
    Sharding,
    Window,
    WindowDim,
)
from .dot import dot
from .dtypes import ELEMENT_TYPES, ElementType
from .errors import HloParseError
from .literals import Literal
from .model import Computation, FileLocation, Instruction, Module, StackFrame, StackFrames
from .opcodes import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, OPCODES
from .read_module import read_module as parse
from .replica_groups import AxisRef, MeshAxes, ReplicaGroups
from .rewrite import clone, inline, replace_computation, replace_instruction, replace_uses
from .shapes import ArrayShape, BufferShape, Layout, OpaqueShape, Shape, TokenShape, TupleShape, without_layout
from .stats import Stats, stats
from .unknown import Unknown, unknown
from .values import FrozenDict, Verbatim
from .verify import Fault, verify

__all__ = [
    "COLLECTIVES",
    "ELEMENTWISE_BINARY",
    "ELEMENTWISE_UNARY",
    "ELEMENT_TYPES",
    "OPCODES",
    "Alias",
    "ArrayShape",
    "AxisRef",
    "BackendConfig",
    "BufferShape",
    "Computation",
    "ConvDimensionNumbers",
    "Donor",
    "ElementType",
    "EntryLayout",
    "Fault",
    "FileLocation",
    "FrozenDict",
    "HloParseError",
    "Instruction",
    "IotaTiles",
    "Layout",
    "Literal",
    "MeshAxes",
    "MlirArray",
    "Module",
    "OpaqueShape",
    "ReplicaGroups",
    "Shape",
    "Sharding",
    "StackFrame",
    "StackFrames",
    "Stats",
    "TokenShape",
    "TupleShape",
    "Unknown",
    "Verbatim",
    "Window",
    "WindowDim",
    "clone",
    "dominators",
    "dot",
    "inline",
    "parse",
    "post_dominators",
    "reachability",
    "replace_computation",
    "replace_instruction",
    "replace_uses",
    "stats",
    "topological_order",
    "unknown",
    "users",
    "verify",
    "without_layout",
]
