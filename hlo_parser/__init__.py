"""Reads, checks, rewrites and writes XLA's HLO text.

``parse(text)`` gives a ``Module`` or raises ``HloParseError`` (``parse_all`` for several in one text); ``str(module)``
gives text that XLA reads. Modules are immutable and hashable; ``hlo_parser.rewrite`` makes new ones from old,
``hlo_parser.analysis`` answers questions about dataflow, ``verify(module)`` lists every fault, ``diff`` compares two
modules whatever their names, ``find`` looks for a pattern. From a shell:
``python -m hlo_parser check|print|stats|dot|diff|find``.
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
from .diff import Difference, diff
from .dot import dot
from .dtypes import ELEMENT_TYPES, ElementType
from .errors import HloParseError
from .find import Match, Pattern, find, read_pattern
from .literals import Literal
from .model import Computation, FileLocation, Instruction, Module, StackFrame, StackFrames
from .opcodes import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, OPCODES
from .read_module import read_module as parse
from .read_module import read_modules as parse_all
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
    "Difference",
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
    "Match",
    "MeshAxes",
    "MlirArray",
    "Module",
    "OpaqueShape",
    "Pattern",
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
    "diff",
    "dominators",
    "dot",
    "find",
    "inline",
    "parse",
    "parse_all",
    "post_dominators",
    "reachability",
    "read_pattern",
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
