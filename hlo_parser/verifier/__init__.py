"""Checks that a module is well formed: ``verify(module)`` returns every fault it finds."""

from __future__ import annotations

from ..model import Module
from .fault import Fault
from .operations import operation_faults
from .structure import structure_faults

__all__ = ["Fault", "verify"]


def verify(module: Module) -> list[Fault]:
    """Return every fault of the module, in the order of its text; empty where it is well formed.

    Names are unique and resolve, nothing depends on itself, each operation has the operands, attributes and shapes it
    needs, and each computation is called with the parameters it has. Layouts are not compared, and operations this
    library does not know are not judged.
    """
    faults = structure_faults(module)
    # Shapes can be looked up only where names resolve.
    return faults or operation_faults(module)
