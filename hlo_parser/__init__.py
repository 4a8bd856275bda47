"""Reads, checks, rewrites and writes XLA's HLO text.

``parse(text)`` gives a ``Module`` or raises ``HloParseError`` (``parse_all`` for several in one text); ``str(module)``
gives text that XLA reads. Modules are immutable and hashable; ``hlo_parser.rewrite`` makes new ones from old,
``hlo_parser.analysis`` answers questions about dataflow, ``verify(module)`` lists every fault, ``diff`` compares two
modules whatever their names, ``find`` looks for a pattern. From a shell:
``python -m hlo_parser check|print|stats|dot|diff|find``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from .comparison import Difference, diff
    from .counts import Stats, stats
    from .dtypes import ELEMENT_TYPES, ElementType
    from .errors import HloParseError
    from .graphviz import dot
    from .literals import Literal
    from .matching import Match, Pattern, find, read_pattern
    from .model import Computation, FileLocation, Instruction, Module, StackFrame, StackFrames
    from .opcodes import COLLECTIVES, ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, OPCODES
    from .reading.module import read_module as parse
    from .reading.module import read_modules as parse_all
    from .replica_groups import AxisRef, MeshAxes, ReplicaGroups
    from .rewrite import clone, inline, replace_computation, replace_instruction, replace_uses
    from .shapes import ArrayShape, BufferShape, Layout, OpaqueShape, Shape, TokenShape, TupleShape, without_layout
    from .unknown_keys import Unknown, unknown
    from .values import FrozenDict, Verbatim
    from .verifier import Fault, verify

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

_HOMES = {
    "analysis": "dominators post_dominators reachability topological_order users",
    "attributes": "Alias BackendConfig ConvDimensionNumbers Donor EntryLayout IotaTiles MlirArray Sharding Window "
    "WindowDim",
    "comparison": "Difference diff",
    "counts": "Stats stats",
    "dtypes": "ELEMENT_TYPES ElementType",
    "errors": "HloParseError",
    "graphviz": "dot",
    "literals": "Literal",
    "matching": "Match Pattern find read_pattern",
    "model": "Computation FileLocation Instruction Module StackFrame StackFrames",
    "opcodes": "COLLECTIVES ELEMENTWISE_BINARY ELEMENTWISE_UNARY OPCODES",
    "reading.module": "parse parse_all",
    "replica_groups": "AxisRef MeshAxes ReplicaGroups",
    "rewrite": "clone inline replace_computation replace_instruction replace_uses",
    "shapes": "ArrayShape BufferShape Layout OpaqueShape Shape TokenShape TupleShape without_layout",
    "unknown_keys": "Unknown unknown",
    "values": "FrozenDict Verbatim",
    "verifier": "Fault verify",
}
"""By module, what of it is public here. A module is imported when something of it is first asked for (PEP 562): whoever
has a module's values needs no reader of text, whose regular expressions take long to compile.
"""

_ELSEWHERE = {"parse": "read_module", "parse_all": "read_modules"}
_MODULES = ("analysis", "rewrite")
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOME[name]}", __name__), _ELSEWHERE.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
